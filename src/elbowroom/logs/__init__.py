"""What elbowroom writes down about its own work: lines for people, lines for programs, no secrets, no conversations."""
