//! What the WIT of a component says of its functions. A component itself keeps the shapes and not the words.

use std::path::Path;

use wit_component::{OutputToString, WitPrinter};
use wit_parser::{Function, PackageId, Resolve, Type, TypeDefKind, WorldItem};

use super::shape::{Float, Integer, Long, Part, Shape};

/// Levels of names that stand for other names. WIT knows no circles; a bound costs nothing.
const ALIASES: usize = 64;

/// The WIT that describes a component.
pub struct Wit {
    resolve: Resolve,
    package: PackageId,
}

/// A WIT has a type otherwise than the component.
pub(super) struct OtherType;

/// Why a WIT cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WitError {
    /// It cannot be read, or is no WIT.
    #[error("failed to read the WIT `{place}`: {reason}")]
    Read {
        /// The file or directory.
        place: String,
        /// The parser's words.
        reason: String,
    },
}

impl Wit {
    /// Read a file, or a directory with `deps` in it.
    pub fn read(place: &Path) -> Result<Self, WitError> {
        let mut resolve = Resolve::default();
        match resolve.push_path(place) {
            Ok((package, _)) => Ok(Self { resolve, package }),
            Err(error) => Err(WitError::Read {
                place: place.display().to_string(),
                reason: resolve.render_error(&error),
            }),
        }
    }

    /// Read what [`to_text`](Self::to_text) wrote; `place` is what errors call it.
    pub fn parse(place: &str, text: &str) -> Result<Self, WitError> {
        let mut resolve = Resolve::default();
        match resolve.push_source(place, text) {
            Ok(package) => Ok(Self { resolve, package }),
            Err(error) => {
                Err(WitError::Read { place: place.to_owned(), reason: resolve.render_error(&error) })
            }
        }
    }

    /// All of it in one text, the packages that it uses included.
    pub fn to_text(&self) -> Result<String, WitError> {
        let others: Vec<_> =
            self.resolve.packages.iter().map(|(id, _)| id).filter(|id| *id != self.package).collect();
        let mut printer = WitPrinter::new(OutputToString::default());
        match printer.print(&self.resolve, self.package, &others) {
            Ok(()) => Ok(printer.output.into()),
            Err(error) => {
                let place = self.resolve.packages[self.package].name.to_string();
                Err(WitError::Read { place, reason: format!("{error:#}") })
            }
        }
    }

    /// The function that a component exports under this name, in this interface or in its world. Of several worlds that
    /// export one, the first.
    pub(super) fn function(&self, interface: Option<&str>, name: &str) -> Option<&Function> {
        match interface {
            Some(interface) => {
                let mut interfaces = self.resolve.interfaces.iter();
                let (_, found) =
                    interfaces.find(|(id, _)| self.resolve.id_of(*id).as_deref() == Some(interface))?;
                found.functions.get(name)
            }
            None => self.resolve.worlds.iter().find_map(|(_, world)| {
                world.exports.iter().find_map(|(_, item)| match item {
                    WorldItem::Function(function) if function.name == name => Some(function),
                    _ => None,
                })
            }),
        }
    }

    /// Write what the WIT says of a type into its shape, and return what it says of the type itself.
    ///
    /// # Errors
    /// The WIT describes another type.
    pub(super) fn describe(&self, shape: &mut Shape, ty: &Type) -> Result<Option<String>, OtherType> {
        let mut ty = *ty;
        let mut docs = None;
        for _ in 0..ALIASES {
            let Type::Id(id) = ty else { return if is_plain(shape, ty) { Ok(docs) } else { Err(OtherType) } };
            let definition = &self.resolve.types[id];
            docs = docs.or_else(|| words(&definition.docs));
            match &definition.kind {
                TypeDefKind::Type(other) => ty = *other,
                kind if self.compound(shape, kind) => return Ok(docs),
                _ => break,
            }
        }
        Err(OtherType)
    }

    fn compound(&self, shape: &mut Shape, kind: &TypeDefKind) -> bool {
        match (shape, kind) {
            (Shape::Bytes, TypeDefKind::List(item)) => self.is_byte(*item),
            (Shape::List(shape), TypeDefKind::List(item)) => self.fits(shape, item),
            (Shape::Option(shape), TypeDefKind::Option(ty)) => self.fits(shape, ty),
            (Shape::Tuple(shapes), TypeDefKind::Tuple(tuple)) => {
                shapes.len() == tuple.types.len()
                    && shapes.iter_mut().zip(&tuple.types).all(|(shape, ty)| self.fits(shape, ty))
            }
            (Shape::Record(parts), TypeDefKind::Record(record)) => {
                parts.len() == record.fields.len()
                    && parts.iter_mut().zip(&record.fields).all(|(part, field)| {
                        part.name == field.name
                            && self.describe(&mut part.of, &field.ty).is_ok_and(|of_type| {
                                part.docs = words(&field.docs).or(of_type);
                                true
                            })
                    })
            }
            (Shape::Variant(parts), TypeDefKind::Variant(variant)) => {
                parts.len() == variant.cases.len()
                    && parts.iter_mut().zip(&variant.cases).all(|(part, case)| {
                        let fits = match (&mut part.of, &case.ty) {
                            (None, None) => true,
                            (Some(shape), Some(ty)) => self.fits(shape, ty),
                            _ => false,
                        };
                        part.docs = words(&case.docs);
                        part.name == case.name && fits
                    })
            }
            (Shape::Enum(parts), TypeDefKind::Enum(cases)) => {
                name(parts, cases.cases.iter().map(|case| (&*case.name, &case.docs)))
            }
            (Shape::Flags(parts), TypeDefKind::Flags(flags)) => {
                name(parts, flags.flags.iter().map(|flag| (&*flag.name, &flag.docs)))
            }
            (Shape::Result(ok, err), TypeDefKind::Result(result)) => {
                [(ok, &result.ok), (err, &result.err)].into_iter().all(|sides| match sides {
                    (None, None) => true,
                    (Some(shape), Some(ty)) => self.fits(shape, ty),
                    _ => false,
                })
            }
            _ => false,
        }
    }

    fn fits(&self, shape: &mut Shape, ty: &Type) -> bool {
        self.describe(shape, ty).is_ok()
    }

    fn is_byte(&self, ty: Type) -> bool {
        self.fits(&mut Shape::Integer(Integer::U8), &ty)
    }
}

impl std::fmt::Debug for Wit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wit")
            .field("package", &self.resolve.packages[self.package].name)
            .finish_non_exhaustive()
    }
}

fn is_plain(shape: &Shape, ty: Type) -> bool {
    let expected = match ty {
        Type::Bool => Shape::Bool,
        Type::S8 => Shape::Integer(Integer::S8),
        Type::U8 => Shape::Integer(Integer::U8),
        Type::S16 => Shape::Integer(Integer::S16),
        Type::U16 => Shape::Integer(Integer::U16),
        Type::S32 => Shape::Integer(Integer::S32),
        Type::U32 => Shape::Integer(Integer::U32),
        Type::S64 => Shape::Long(Long::S64),
        Type::U64 => Shape::Long(Long::U64),
        Type::F32 => Shape::Float(Float::F32),
        Type::F64 => Shape::Float(Float::F64),
        Type::Char => Shape::Char,
        Type::String => Shape::String,
        _ => return false,
    };
    *shape == expected
}

fn name<'a>(
    parts: &mut [Part<()>],
    names: impl ExactSizeIterator<Item = (&'a str, &'a wit_parser::Docs)>,
) -> bool {
    parts.len() == names.len()
        && parts.iter_mut().zip(names).all(|(part, (name, docs))| {
            part.docs = words(docs);
            part.name == name
        })
}

/// What is said, as one text.
pub(super) fn words(docs: &wit_parser::Docs) -> Option<String> {
    docs.contents.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(ToOwned::to_owned)
}
