//! Calls of real components through the engine, one theme a file.

#![allow(missing_docs, reason = "a test's name is its documentation")]

mod classes;
mod files;
mod git;
mod load;
mod processes;
mod support;
