//! A machine as text for people.
