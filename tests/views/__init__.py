"""Tests of `ketch.views`."""
