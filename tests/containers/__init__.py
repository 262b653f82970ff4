"""Services and the product's own image as containers: `make test-containers`."""
