"""What fleets get agents from. Each module is one kind of engine."""
