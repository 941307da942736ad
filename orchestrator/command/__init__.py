"""What every command has: its options, its exit codes, its progress, its tables and the files that it writes."""
