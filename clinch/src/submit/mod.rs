//! The duplicate guard, and the policies of all guards.
