"""kohya's trainers: sd-scripts and musubi-tuner."""
