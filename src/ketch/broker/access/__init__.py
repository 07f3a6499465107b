"""The stages of a request's pipeline that decide about its sender."""
