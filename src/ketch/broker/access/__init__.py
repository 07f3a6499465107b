"""The stages of a request's pipeline that decide about its client: who it is, what it may do, and how much of it."""
