//! Looking at a component without making a plugin of it: any component, whole or broken.

use std::fmt;

use bytes::Bytes;
use wasmtime::component::Component;

use super::Engine;
use super::call::Draw;
use super::descriptor::Described;
use super::exports::Exports;
use super::facts;
use super::foreign::Foreign;
use super::functions::UnfitFunction;
use super::interface::{self, Interface};
use super::offered;
use super::plugin::{LoadError, Plugin};
use super::request::Abort;
use super::types::{Digest, EffectPlan};

/// A component that the engine understands. What it asks for and what it holds may be anything.
pub struct Examined<'e> {
    engine: &'e Engine,
    name: String,
    bytes: Bytes,
    digest: Digest,
    component: Component,
}

/// Its tools, which can be asked what they are.
pub struct Askable<'e> {
    engine: &'e Engine,
    exports: Exports,
}

impl Engine {
    /// Look at a component; `name` is what errors call it.
    ///
    /// # Errors
    /// [`LoadError::NotAComponent`].
    pub fn examine(&self, name: &str, bytes: &[u8]) -> Result<Examined<'_>, LoadError> {
        let bytes = Bytes::copy_from_slice(bytes);
        let digest = Digest::of(&bytes);
        let component = self.code(name, &bytes, digest)?;
        Ok(Examined { engine: self, name: name.to_owned(), bytes, digest, component })
    }
}

impl<'e> Examined<'e> {
    /// Of its bytes.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What it imports.
    pub fn imports(&self) -> Vec<Interface> {
        interface::imports(&self.engine.wasm, &self.component)
    }

    /// What it exports.
    pub fn exports(&self) -> Vec<Interface> {
        interface::exports(&self.engine.wasm, &self.component)
    }

    /// Those of its imports that the host does not offer.
    pub fn missing_imports(&self) -> Vec<String> {
        offered::missing(&facts::imports(&self.component))
    }

    /// Make a plugin of it, as [`Engine::load_as`] does.
    ///
    /// # Errors
    /// Why it is none.
    pub fn load(&self, foreign: &Foreign) -> Result<Plugin, LoadError> {
        self.engine.plugin(&self.name, self.bytes.clone(), self.digest, &self.component, foreign)
    }

    /// Its tools, to be asked.
    ///
    /// # Errors
    /// An import that the host does not offer or that has another shape, or no tools among its exports.
    pub fn ask(&self) -> Result<Askable<'e>, LoadError> {
        let exports = self.engine.bind(&self.name, &self.component, &Foreign::default())?;
        Ok(Askable { engine: self.engine, exports })
    }
}

impl Askable<'_> {
    /// What it says of its tools. Everything by chance is drawn from `draw`: with another one, the answer must be the
    /// same.
    ///
    /// # Errors
    /// How `describe` ended.
    pub fn describe(&self, draw: u8) -> Result<Vec<Described>, Abort> {
        self.engine.describe(&self.exports, Draw(draw))
    }

    /// What it makes of the class of a call: a plan, or in its words why there is none.
    ///
    /// # Errors
    /// How `refine` ended.
    pub fn refine(&self, tool: &str, args: &str, draw: u8) -> Result<Result<EffectPlan, String>, Abort> {
        let answer = self.engine.ask_refine(&self.exports, tool, args, Draw(draw))?;
        Ok(answer.map(EffectPlan::from).map_err(|error| error.message))
    }

    /// Its plain functions that are no tools; none where its tools are something else.
    pub fn unfit_functions(&self) -> &[UnfitFunction] {
        self.exports.functions().map_or(&[], |functions| &functions.unfit)
    }

    /// Whether its tools are plain functions.
    pub fn is_foreign(&self) -> bool {
        self.exports.functions().is_some()
    }

    /// Whether it can be asked if a call landed.
    pub fn exports_probe(&self) -> bool {
        self.exports.probing().is_some()
    }
}

impl fmt::Debug for Examined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Examined")
            .field("name", &self.name)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Askable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Askable").field("exports_probe", &self.exports_probe()).finish_non_exhaustive()
    }
}
