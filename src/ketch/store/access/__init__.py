"""Questions to Redis about access: users and their credentials."""
