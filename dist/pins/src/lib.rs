//! Has no code: its manifest pins each dependency to one version.
//!
//! The published crates ask for ranges, so that others can resolve beside them. No published crate depends on
//! this one, so the pins hold in this project's workspaces only.
