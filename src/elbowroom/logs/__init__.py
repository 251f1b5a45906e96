"""The log of elbowroom's own work, for people and for programs, without secrets and without conversations."""
