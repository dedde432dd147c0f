//! Making a generation of the live data.
