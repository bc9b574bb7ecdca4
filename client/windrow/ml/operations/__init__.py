"""What an `MLClient` can be asked, by kind of thing."""
