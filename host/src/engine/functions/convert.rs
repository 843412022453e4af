//! Values of plain functions as JSON, and back. What [`schema`](super::schema) describes.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Number, Value, json};
use wasmtime::component::Val;

use super::schema::{INFINITY, NAN, NEGATIVE_INFINITY};
use super::shape::{Float, Integer, Long, Part, Shape};
use crate::engine::limits::shortened;

/// Bytes of a value that an error repeats.
const GOT_BYTES: usize = 200;

/// A value that does not fit its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misfit {
    /// JSON pointer.
    place: String,
    expected: String,
    got: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, expected, got } = self;
        match &**place {
            "" => write!(f, "expected {expected}, got {got}"),
            place => write!(f, "at `{place}`: expected {expected}, got {got}"),
        }
    }
}

impl Misfit {
    fn new(expected: impl fmt::Display, got: &Value) -> Self {
        Self {
            place: String::new(),
            expected: expected.to_string(),
            got: shortened(got.to_string(), GOT_BYTES),
        }
    }

    /// The same one level further out.
    fn within(mut self, place: impl fmt::Display) -> Self {
        self.place = format!("/{place}{}", self.place);
        self
    }
}

/// The value that a piece of JSON stands for.
pub(super) fn to_val(shape: &Shape, value: &Value) -> Result<Val, Misfit> {
    let misfit = || Misfit::new(shape, value);
    Ok(match shape {
        Shape::Bool => Val::Bool(value.as_bool().ok_or_else(misfit)?),
        Shape::Integer(integer) => to_integer(*integer, value).ok_or_else(misfit)?,
        Shape::Long(long) => value.as_str().and_then(|text| to_long(*long, text)).ok_or_else(misfit)?,
        Shape::Float(float) => to_float(*float, value).ok_or_else(misfit)?,
        Shape::Char => {
            let mut characters = value.as_str().ok_or_else(misfit)?.chars();
            match (characters.next(), characters.next()) {
                (Some(only), None) => Val::Char(only),
                _ => return Err(misfit()),
            }
        }
        Shape::String => Val::String(value.as_str().ok_or_else(misfit)?.to_owned()),
        Shape::Bytes => {
            let text = value.as_str().ok_or_else(misfit)?;
            let bytes = BASE64_STANDARD.decode(text).map_err(|_| misfit())?;
            Val::List(bytes.into_iter().map(Val::U8).collect())
        }
        Shape::List(item) => {
            let items = value.as_array().ok_or_else(misfit)?.iter().enumerate();
            let items = items.map(|(index, value)| to_val(item, value).map_err(|why| why.within(index)));
            Val::List(items.collect::<Result<_, _>>()?)
        }
        Shape::Tuple(shapes) => {
            let items = value.as_array().filter(|items| items.len() == shapes.len()).ok_or_else(misfit)?;
            let items = shapes.iter().zip(items).enumerate();
            let items =
                items.map(|(index, (shape, value))| to_val(shape, value).map_err(|why| why.within(index)));
            Val::Tuple(items.collect::<Result<_, _>>()?)
        }
        Shape::Record(fields) => Val::Record(to_fields(fields, value.as_object().ok_or_else(misfit)?)?),
        Shape::Variant(cases) => {
            let (name, payload) = tag(value).ok_or_else(misfit)?;
            let case = cases.iter().find(|case| case.name == name).ok_or_else(misfit)?;
            let payload = match (&case.of, payload) {
                (None, None) => None,
                (Some(shape), Some(value)) => {
                    Some(Box::new(to_val(shape, value).map_err(|why| why.within(name))?))
                }
                _ => return Err(misfit()),
            };
            Val::Variant(name.to_owned(), payload)
        }
        Shape::Enum(cases) => Val::Enum(name_of(cases, value).ok_or_else(misfit)?),
        Shape::Flags(flags) => {
            let names = value.as_array().ok_or_else(misfit)?;
            let names = names.iter().map(|name| name_of(flags, name).ok_or_else(misfit));
            Val::Flags(names.collect::<Result<_, _>>()?)
        }
        Shape::Option(_) if value.is_null() => Val::Option(None),
        Shape::Option(inner) if inner.takes_null() => match tag(value) {
            Some(("some", Some(value))) => {
                let value = to_val(inner, value).map_err(|why| why.within("some"))?;
                Val::Option(Some(Box::new(value)))
            }
            _ => return Err(misfit()),
        },
        Shape::Option(inner) => {
            let value = to_val(inner, value).map_err(|why| Misfit { expected: shape.to_string(), ..why });
            Val::Option(Some(Box::new(value?)))
        }
        Shape::Result(ok, err) => {
            let (side, payload) = tag(value).ok_or_else(misfit)?;
            let payload = payload.ok_or_else(misfit)?;
            let convert = |shape: &Option<Box<Shape>>| match shape {
                Some(shape) => to_val(shape, payload).map(|value| Some(Box::new(value))),
                None if payload.is_null() => Ok(None),
                None => Err(Misfit::new("`null`", payload)),
            };
            Val::Result(match side {
                "ok" => Ok(convert(ok).map_err(|why| why.within("ok"))?),
                "err" => Err(convert(err).map_err(|why| why.within("err"))?),
                _ => return Err(misfit()),
            })
        }
    })
}

/// The values of an object's fields, in their order.
pub(super) fn to_fields(
    fields: &[Part<Shape>],
    object: &Map<String, Value>,
) -> Result<Vec<(String, Val)>, Misfit> {
    if let Some((unknown, value)) =
        object.iter().find(|(name, _)| fields.iter().all(|field| field.name != **name))
    {
        return Err(Misfit::new("no such field", value).within(unknown));
    }
    let values = fields.iter().map(|field| {
        let value = object.get(&field.name).unwrap_or(&Value::Null);
        let value = to_val(&field.of, value).map_err(|why| why.within(&field.name))?;
        Ok((field.name.clone(), value))
    });
    values.collect()
}

/// A string, or an object of one field.
fn tag(value: &Value) -> Option<(&str, Option<&Value>)> {
    match value {
        Value::String(name) => Some((name, None)),
        Value::Object(fields) if fields.len() == 1 => {
            fields.iter().next().map(|(name, value)| (&**name, Some(value)))
        }
        _ => None,
    }
}

fn name_of(names: &[Part<()>], value: &Value) -> Option<String> {
    let name = value.as_str()?;
    names.iter().any(|part| part.name == name).then(|| name.to_owned())
}

fn to_integer(integer: Integer, value: &Value) -> Option<Val> {
    // JSON Schema takes `1.0` for an integer.
    #[expect(clippy::cast_possible_truncation, reason = "a number without a fraction, far below 2^63")]
    let whole = |number: f64| (number.fract() == 0.0 && number.abs() < 1e15).then_some(number as i64);
    let number = value.as_i64().or_else(|| value.as_f64().and_then(whole))?;
    Some(match integer {
        Integer::S8 => Val::S8(number.try_into().ok()?),
        Integer::U8 => Val::U8(number.try_into().ok()?),
        Integer::S16 => Val::S16(number.try_into().ok()?),
        Integer::U16 => Val::U16(number.try_into().ok()?),
        Integer::S32 => Val::S32(number.try_into().ok()?),
        Integer::U32 => Val::U32(number.try_into().ok()?),
    })
}

fn to_long(long: Long, text: &str) -> Option<Val> {
    // The standard library also takes `+1` and `007`, which are other spellings of a value that has one.
    let val = match long {
        Long::S64 => Val::S64(text.parse().ok()?),
        Long::U64 => Val::U64(text.parse().ok()?),
    };
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.starts_with('+') && (digits == "0" || !digits.starts_with('0'))).then_some(val)
}

fn to_float(float: Float, value: &Value) -> Option<Val> {
    let number = match value {
        Value::String(name) => match &**name {
            NAN => f64::NAN,
            INFINITY => f64::INFINITY,
            NEGATIVE_INFINITY => f64::NEG_INFINITY,
            _ => return None,
        },
        value => value.as_f64()?,
    };
    match float {
        Float::F64 => Some(Val::Float64(number)),
        Float::F32 => {
            #[expect(clippy::cast_possible_truncation, reason = "the nearest one is what is meant")]
            let nearest = number as f32;
            (nearest.is_finite() == number.is_finite()).then_some(Val::Float32(nearest))
        }
    }
}

/// The JSON of a value. None for one that is not of this shape, which the engine does not give.
pub(super) fn to_json(shape: &Shape, val: &Val) -> Option<Value> {
    Some(match (shape, val) {
        (Shape::Bool, Val::Bool(value)) => json!(value),
        (Shape::Integer(_), Val::S8(number)) => json!(number),
        (Shape::Integer(_), Val::U8(number)) => json!(number),
        (Shape::Integer(_), Val::S16(number)) => json!(number),
        (Shape::Integer(_), Val::U16(number)) => json!(number),
        (Shape::Integer(_), Val::S32(number)) => json!(number),
        (Shape::Integer(_), Val::U32(number)) => json!(number),
        (Shape::Long(_), Val::S64(number)) => json!(number.to_string()),
        (Shape::Long(_), Val::U64(number)) => json!(number.to_string()),
        (Shape::Float(_), Val::Float32(number)) => of_float(as_written(*number)),
        (Shape::Float(_), Val::Float64(number)) => of_float(*number),
        (Shape::Char, Val::Char(character)) => json!(character),
        (Shape::String, Val::String(text)) => json!(text),
        (Shape::Bytes, Val::List(items)) => {
            let bytes: Option<Vec<u8>> =
                items.iter().map(|item| if let Val::U8(byte) = item { Some(*byte) } else { None }).collect();
            json!(BASE64_STANDARD.encode(bytes?))
        }
        (Shape::List(shape), Val::List(items)) => {
            Value::Array(items.iter().map(|item| to_json(shape, item)).collect::<Option<_>>()?)
        }
        (Shape::Tuple(shapes), Val::Tuple(items)) => {
            let items = shapes.iter().zip(items).map(|(shape, item)| to_json(shape, item));
            Value::Array(items.collect::<Option<_>>()?)
        }
        (Shape::Record(fields), Val::Record(values)) => {
            let values = fields
                .iter()
                .zip(values)
                .map(|(field, (name, value))| Some((name.clone(), to_json(&field.of, value)?)));
            Value::Object(values.collect::<Option<_>>()?)
        }
        (Shape::Variant(cases), Val::Variant(name, payload)) => {
            let case = cases.iter().find(|case| case.name == *name)?;
            match (&case.of, payload) {
                (Some(shape), Some(payload)) => json!({ name: to_json(shape, payload)? }),
                _ => json!(name),
            }
        }
        (Shape::Enum(_), Val::Enum(name)) => json!(name),
        (Shape::Flags(_), Val::Flags(names)) => json!(names),
        (Shape::Option(_), Val::Option(None)) => Value::Null,
        (Shape::Option(inner), Val::Option(Some(value))) if inner.takes_null() => {
            json!({ "some": to_json(inner, value)? })
        }
        (Shape::Option(inner), Val::Option(Some(value))) => to_json(inner, value)?,
        (Shape::Result(ok, _), Val::Result(Ok(value))) => {
            json!({ "ok": side(ok.as_deref(), value.as_deref())? })
        }
        (Shape::Result(_, err), Val::Result(Err(value))) => {
            json!({ "err": side(err.as_deref(), value.as_deref())? })
        }
        _ => return None,
    })
}

/// One side of a result, which may carry nothing.
pub(super) fn side(shape: Option<&Shape>, value: Option<&Val>) -> Option<Value> {
    match (shape, value) {
        (Some(shape), Some(value)) => to_json(shape, value),
        _ => Some(Value::Null),
    }
}

/// The number that has the digits in which this one is written: `0.1` and not `0.10000000149011612`.
fn as_written(number: f32) -> f64 {
    let exact = f64::from(number);
    if !number.is_finite() {
        return exact;
    }
    let written: f64 = number.to_string().parse().unwrap_or(exact);
    #[expect(clippy::cast_possible_truncation, reason = "whether it comes back is the question")]
    let comes_back = (written as f32).to_bits() == number.to_bits();
    if comes_back { written } else { exact }
}

fn of_float(number: f64) -> Value {
    Number::from_f64(number).map_or_else(
        || {
            json!(if number.is_nan() {
                NAN
            } else if number > 0.0 {
                INFINITY
            } else {
                NEGATIVE_INFINITY
            })
        },
        Value::Number,
    )
}
