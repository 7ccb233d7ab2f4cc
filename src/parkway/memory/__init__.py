"""The copying half of a plan: where pages are. Knows no model and no request."""
