//! The attributes of `clinch`; documented there, and used through it.
