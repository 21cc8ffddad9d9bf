//! Guards as tower layers.
