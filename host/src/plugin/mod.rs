//! Plugins as files: what a component is and needs, whether it is a plugin that works, and which ones are installed.
//!
//! | module | answers |
//! |---|---|
//! | [`inspect`] | what does this component export, import and need? Any component, foreign ones too |
//! | [`check`] | is it a plugin, and is it a good one? |
//! | [`needs`] | which grants does an import come to? |

pub mod check;
pub mod inspect;
pub mod needs;
mod sample;
