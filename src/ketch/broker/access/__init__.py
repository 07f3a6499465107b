"""The stages of the pipeline that decide who calls and what it may do."""
