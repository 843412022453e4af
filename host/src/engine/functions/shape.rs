//! The types of plain functions, as far as their values can be written as JSON.

use std::fmt;

use wasmtime::component::types::Type;

/// Parts of one function's types together. A type that refers to another one twice, and that one again, soon has more parts
/// than anybody could read or send to a model.
pub(super) const PARTS: usize = 4_000;

/// Levels of a type. Each is at most three of JSON, and readers of JSON stop at 128.
const LEVELS: usize = 32;

/// A type whose values can be written as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    Bool,
    Integer(Integer),
    /// 64 bits are more than the numbers of most readers of JSON hold.
    Long(Long),
    Float(Float),
    Char,
    String,
    /// A list of bytes.
    Bytes,
    List(Box<Shape>),
    Tuple(Vec<Shape>),
    Record(Vec<Part<Shape>>),
    Variant(Vec<Part<Option<Shape>>>),
    Enum(Vec<Part<()>>),
    Flags(Vec<Part<()>>),
    Option(Box<Shape>),
    Result(Option<Box<Shape>>, Option<Box<Shape>>),
}

/// A named part: a field, a case or a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part<T> {
    pub(super) name: String,
    pub(super) of: T,
    /// What the WIT says of it, where there is one.
    pub(super) docs: Option<String>,
}

/// An integer that every reader of JSON holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Integer {
    S8,
    U8,
    S16,
    U16,
    S32,
    U32,
}

impl Integer {
    /// The least and the greatest.
    pub(super) fn bounds(self) -> (i64, i64) {
        match self {
            Self::S8 => (i8::MIN.into(), i8::MAX.into()),
            Self::U8 => (u8::MIN.into(), u8::MAX.into()),
            Self::S16 => (i16::MIN.into(), i16::MAX.into()),
            Self::U16 => (u16::MIN.into(), u16::MAX.into()),
            Self::S32 => (i32::MIN.into(), i32::MAX.into()),
            Self::U32 => (u32::MIN.into(), u32::MAX.into()),
        }
    }
}

/// An integer of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Long {
    S64,
    U64,
}

/// A number with a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Float {
    F32,
    F64,
}

/// A type whose values cannot be written as JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("{0}, which no JSON can hold")]
    Kind(&'static str),
    #[error("a type of more than {PARTS} parts")]
    Large,
    #[error("a type of more than {LEVELS} levels")]
    Deep,
}

/// Makes shapes of one function's types, which together have so many parts.
pub(super) struct Shapes {
    left: usize,
}

impl Shapes {
    pub(super) fn new() -> Self {
        Self { left: PARTS }
    }

    /// The shape of a type, if its values can be written as JSON.
    pub(super) fn of(&mut self, ty: &Type) -> Result<Shape, Unfit> {
        self.at(ty, LEVELS)
    }

    fn at(&mut self, ty: &Type, levels: usize) -> Result<Shape, Unfit> {
        self.left = self.left.checked_sub(1).ok_or(Unfit::Large)?;
        let levels = levels.checked_sub(1).ok_or(Unfit::Deep)?;
        let mut boxed = |ty: Option<Type>| ty.map(|ty| self.at(&ty, levels).map(Box::new)).transpose();
        Ok(match ty {
            Type::Bool => Shape::Bool,
            Type::S8 => Shape::Integer(Integer::S8),
            Type::U8 => Shape::Integer(Integer::U8),
            Type::S16 => Shape::Integer(Integer::S16),
            Type::U16 => Shape::Integer(Integer::U16),
            Type::S32 => Shape::Integer(Integer::S32),
            Type::U32 => Shape::Integer(Integer::U32),
            Type::S64 => Shape::Long(Long::S64),
            Type::U64 => Shape::Long(Long::U64),
            Type::Float32 => Shape::Float(Float::F32),
            Type::Float64 => Shape::Float(Float::F64),
            Type::Char => Shape::Char,
            Type::String => Shape::String,
            Type::List(list) if matches!(list.ty(), Type::U8) => Shape::Bytes,
            Type::List(list) => Shape::List(Box::new(self.at(&list.ty(), levels)?)),
            Type::Tuple(tuple) => {
                Shape::Tuple(tuple.types().map(|ty| self.at(&ty, levels)).collect::<Result<_, _>>()?)
            }
            Type::Record(record) => {
                let fields = record.fields().map(|field| Ok(part(field.name, self.at(&field.ty, levels)?)));
                Shape::Record(fields.collect::<Result<_, _>>()?)
            }
            Type::Variant(variant) => {
                let cases = variant.cases().map(|case| {
                    let payload = case.ty.map(|ty| self.at(&ty, levels)).transpose()?;
                    Ok(part(case.name, payload))
                });
                Shape::Variant(cases.collect::<Result<_, _>>()?)
            }
            Type::Enum(cases) => Shape::Enum(self.names(cases.names())?),
            Type::Flags(flags) => Shape::Flags(self.names(flags.names())?),
            Type::Option(option) => Shape::Option(Box::new(self.at(&option.ty(), levels)?)),
            Type::Result(result) => Shape::Result(boxed(result.ok())?, boxed(result.err())?),
            Type::Own(_) | Type::Borrow(_) => return Err(Unfit::Kind("a resource")),
            Type::Future(_) => return Err(Unfit::Kind("a future")),
            Type::Stream(_) => return Err(Unfit::Kind("a stream")),
            Type::ErrorContext => return Err(Unfit::Kind("an error context")),
            // The engine takes neither yet.
            Type::Map(_) => return Err(Unfit::Kind("a map")),
            Type::FixedLengthList(_) => return Err(Unfit::Kind("a list of fixed length")),
        })
    }

    fn names<'a>(&mut self, names: impl ExactSizeIterator<Item = &'a str>) -> Result<Vec<Part<()>>, Unfit> {
        self.left = self.left.checked_sub(names.len()).ok_or(Unfit::Large)?;
        Ok(names.map(|name| part(name, ())).collect())
    }
}

pub(super) fn part<T>(name: &str, of: T) -> Part<T> {
    Part { name: name.to_owned(), of, docs: None }
}

impl Shape {
    /// Whether `null` is one of its values.
    pub(super) fn takes_null(&self) -> bool {
        matches!(self, Self::Option(_))
    }
}

/// What a value is to be, for messages.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |parts: &[Part<()>]| {
            parts.iter().map(|part| format!("`{}`", part.name)).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Bool => f.write_str("`true` or `false`"),
            Self::Integer(integer) => {
                let (least, greatest) = integer.bounds();
                write!(f, "an integer from {least} to {greatest}")
            }
            Self::Long(Long::S64) => write!(f, "a string of an integer from {} to {}", i64::MIN, i64::MAX),
            Self::Long(Long::U64) => write!(f, "a string of an integer from 0 to {}", u64::MAX),
            Self::Float(Float::F32) => {
                write!(f, "a number up to {:e}, or one of `NaN`, `Infinity`, `-Infinity`", f32::MAX)
            }
            Self::Float(Float::F64) => f.write_str("a number, or one of `NaN`, `Infinity`, `-Infinity`"),
            Self::Char => f.write_str("a string of one character"),
            Self::String => f.write_str("a string"),
            Self::Bytes => f.write_str("a string of bytes in Base64"),
            Self::List(_) => f.write_str("an array"),
            Self::Tuple(items) => write!(f, "an array of {}", items.len()),
            Self::Record(fields) => {
                let fields: Vec<_> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
                write!(f, "an object with {}", fields.join(", "))
            }
            Self::Variant(cases) => {
                let cases = cases.iter().map(|case| match case.of {
                    None => format!("`\"{}\"`", case.name),
                    Some(_) => format!("`{{\"{}\": …}}`", case.name),
                });
                write!(f, "one of {}", cases.collect::<Vec<_>>().join(", "))
            }
            Self::Enum(cases) => write!(f, "one of {}", names(cases)),
            Self::Flags(flags) => write!(f, "an array of any of {}", names(flags)),
            Self::Option(of) if of.takes_null() => f.write_str("`{\"some\": …}`, or `null`"),
            Self::Option(of) => write!(f, "{of}, or `null`"),
            Self::Result(..) => f.write_str("`{\"ok\": …}` or `{\"err\": …}`"),
        }
    }
}
