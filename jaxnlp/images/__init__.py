"""Images: files, arrays and pictures. No jax."""
