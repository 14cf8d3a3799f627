//! Results as IOR prints them.
