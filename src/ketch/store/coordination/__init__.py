"""What coordinators keep in Redis: groups, commits, transactional ids, and the terms that fence them."""
