"""The checks, one module for each subject. Every one is pure: a picture in, findings out."""
