"""Several processes train one run together: their ranks, their launcher, and what accelerate says of them."""
