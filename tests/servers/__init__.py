"""Tests against real servers, started here on the loopback interface and stopped again."""
