"""Providers that ring phones: APNs over HTTP/2, FCM over its HTTP v1 API."""
