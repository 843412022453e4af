//! Plugins as files: what a component is and needs, whether it is a plugin that works, and which ones are installed.
//!
//! | module | answers |
//! |---|---|
//! | [`inspect`] | what does this component export, import and need? Any component, foreign ones too |
//! | [`check`] | is it a plugin, and is it a good one? |
//! | [`needs`] | which grants does an import come to? |
//! | [`installed`] | which plugins are installed, and is each still what was installed? |
//! | [`project`] | what does a new project hold, and how is it built? |
//! | [`update`] | does a new version claim more than the installed one? |

pub mod check;
pub mod inspect;
pub mod installed;
pub mod needs;
mod pins;
pub mod project;
mod sample;
pub mod update;
