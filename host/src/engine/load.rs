//! From a component's bytes to a plugin: what it says of itself, and what of it is compiled.

use std::io;
use std::sync::PoisonError;

use bytes::Bytes;
use wasmtime::component::Component;

use super::call::Draw;
use super::exports::{self, Exports};
use super::facts::{self, Facts};
use super::foreign::Foreign;
use super::functions::Wit;
use super::plugin::{self, LoadError, Plugin};
use super::types::Digest;
use super::{Engine, descriptor, offered, stub};

impl Engine {
    /// Compile a component, or take it from the cache, and learn which tools it holds. Text form (`.wat`) is not taken.
    pub fn load(&self, name: &str, bytes: &[u8]) -> Result<Plugin, LoadError> {
        self.load_as(name, bytes, &Foreign::default())
    }

    /// The same, with what the operator says of a component that does not speak for itself.
    pub fn load_as(&self, name: &str, bytes: &[u8], foreign: &Foreign) -> Result<Plugin, LoadError> {
        let bytes = Bytes::copy_from_slice(bytes);
        let digest = Digest::of(&bytes);
        self.plugin(name, bytes.clone(), digest, &self.code(name, &bytes, digest)?, foreign)
    }

    /// Learn which tools a component holds. It is compiled when one of them is called first; now only if nothing is known of
    /// it yet.
    pub fn open(&self, name: &str, bytes: Bytes, foreign: &Foreign) -> Result<Plugin, LoadError> {
        let digest = Digest::of(&bytes);
        match self.known(digest, foreign) {
            Some(facts) => {
                lacks_nothing(name, &facts.imports, foreign)?;
                Plugin::new(name, bytes, digest, facts, foreign)
            }
            None => self.plugin(name, bytes.clone(), digest, &self.code(name, &bytes, digest)?, foreign),
        }
    }

    /// Whether [`open`](Self::open) compiles nothing.
    pub fn is_known(&self, bytes: &[u8], foreign: &Foreign) -> bool {
        self.known(Digest::of(bytes), foreign).is_some()
    }

    fn known(&self, digest: Digest, foreign: &Foreign) -> Option<Facts> {
        self.cache.as_ref()?.facts(Facts::key(digest, foreign.wit.as_deref()))
    }

    /// Whether to [`prepare`](Self::prepare) it takes no longer than to read a file.
    pub(crate) fn is_compiled(&self, plugin: &Plugin) -> bool {
        plugin.is_ready() || self.cache.as_ref().is_some_and(|cache| cache.has(plugin.digest()))
    }

    /// Have a plugin compiled before it is called. What that takes is no part of any call's time.
    ///
    /// # Errors
    /// This engine does not take what another one did.
    pub fn prepare<'p>(&self, plugin: &'p Plugin) -> Result<(), &'p LoadError> {
        self.exports(plugin).map(|_| ())
    }

    pub(super) fn exports<'p>(&self, plugin: &'p Plugin) -> Result<&'p Exports, &'p LoadError> {
        plugin.exports(|plugin| {
            let code = self.code(plugin.name(), plugin.bytes(), plugin.digest())?;
            self.bind(plugin.name(), &code, plugin.foreign())
        })
    }

    /// A plugin that is compiled already.
    pub(super) fn plugin(
        &self,
        name: &str,
        bytes: Bytes,
        digest: Digest,
        component: &Component,
        foreign: &Foreign,
    ) -> Result<Plugin, LoadError> {
        let exports = self.bind(name, component, foreign)?;
        let facts = match self.known(digest, foreign) {
            Some(facts) => facts,
            None => self.learn(name, digest, component, &exports, foreign)?,
        };
        let plugin = Plugin::new(name, bytes, digest, facts, foreign)?;
        // It was made just now, so nobody was faster.
        let _ = plugin.exports(|_| Ok(exports));
        Ok(plugin)
    }

    /// Ask the component what it is, and keep that.
    fn learn(
        &self,
        name: &str,
        digest: Digest,
        component: &Component,
        exports: &Exports,
        foreign: &Foreign,
    ) -> Result<Facts, LoadError> {
        let described = self
            .describe(exports, Draw(0))
            .map_err(|abort| LoadError::Describe { name: name.to_owned(), abort })?;
        let facts = Facts {
            tools: descriptor::check_all(name, &described)?,
            imports: facts::imports(component),
            exports_probe: exports.probing().is_some(),
            unfit_functions: exports.functions().map(|functions| functions.unfit.clone()),
        };
        plugin::check_use(name, &facts)?;
        if let Some(cache) = &self.cache {
            let kept = cache.store_facts(Facts::key(digest, foreign.wit.as_deref()), &facts);
            self.warn_if_not(kept, name);
        }
        Ok(facts)
    }

    /// The compiled component: from the cache, or compiled and kept there.
    pub(super) fn code(&self, name: &str, bytes: &[u8], digest: Digest) -> Result<Component, LoadError> {
        if let Some(code) = self.cache.as_ref().and_then(|cache| cache.load(&self.wasm, digest)) {
            return Ok(code);
        }
        if let Some(observer) = &self.on_compile {
            observer.began(name, bytes.len());
        }
        let compiled = Component::from_binary(&self.wasm, bytes);
        if let Some(observer) = &self.on_compile {
            observer.ended(name);
        }
        let component = compiled.map_err(|error| LoadError::NotAComponent {
            name: name.to_owned(),
            reason: format!("{error:#}"),
        })?;
        if let Some(cache) = &self.cache {
            self.warn_if_not(cache.store(digest, &component), name);
        }
        Ok(component)
    }

    fn warn_if_not(&self, kept: io::Result<()>, name: &str) {
        if let Err(error) = kept {
            let warning = format!("the compiled plugin `{name}` could not be kept: {error}");
            *self.cache_warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(warning);
        }
    }

    pub(super) fn bind(
        &self,
        name: &str,
        component: &Component,
        foreign: &Foreign,
    ) -> Result<Exports, LoadError> {
        let stubs = lacks_nothing(name, &facts::imports(component), foreign)?;
        let unusable = |error: wasmtime::Error| LoadError::UnusableImport {
            name: name.to_owned(),
            reason: format!("{error:#}"),
        };
        let instance = if stubs.is_empty() {
            self.linker.instantiate_pre(component)
        } else {
            let mut linker = self.linker.clone();
            stub::define(&mut linker, component, &stubs).map_err(unusable)?;
            linker.instantiate_pre(component)
        };
        let mut exports = exports::bind(name, component, instance.map_err(unusable)?)?;
        if let (Some(text), Exports::Functions(functions)) = (&foreign.wit, &mut exports) {
            let wit = Wit::parse("the component's WIT", text)
                .map_err(|error| LoadError::Foreign { name: name.to_owned(), error: error.into() })?;
            functions.document(&wit);
        }
        Ok(exports)
    }
}

/// Those of the imports that are stubs.
///
/// # Errors
/// Imports that the host does not offer, and that nobody said are stubs.
fn lacks_nothing(name: &str, imports: &[String], foreign: &Foreign) -> Result<Vec<String>, LoadError> {
    let (stubs, missing): (Vec<_>, Vec<_>) =
        offered::missing(imports).into_iter().partition(|import| foreign.stubs.cover(import));
    if missing.is_empty() {
        Ok(stubs)
    } else {
        Err(LoadError::MissingImports { name: name.to_owned(), missing })
    }
}
