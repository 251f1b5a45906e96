"""What the user chose: the settings file, the environment, the flags, and where they are."""
