//! Random types, random values, and a real component that gives back what it is given.
//!
//! The component is encoded from a random WIT and a core module whose only function returns the address that it is given: by the
//! canonical ABI the values pass through the guest's memory all the same, and come out as the guest's result.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::super::{
    CallContext, CallEnd, CallObserver, CallRequest, CancelToken, Engine, EngineConfig, Foreign, Grants,
    Limits, NoObserver, Plugin,
};
use super::shape::{Float, Integer, Long};
use super::*;
use crate::tests::seeds::{Seeded, each, report};

/// Values that each component is called with.
const VALUES: u64 = 20;

/// Levels of the random types.
const LEVELS: usize = 5;

/// More than the sixteen parts up to which the canonical ABI passes values one by one, and not by their address.
const PAD: &str = "tuple<u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8>";

/// Gives back the address that it is given. Its memory is never freed: it is for one call.
const ECHO: &str = r#"(module
    (memory (export "memory") 64)
    (global $free (mut i32) (i32.const 8))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
        (local $at i32)
        ;; Up to the next multiple of the alignment.
        (local.set $at (i32.and
            (i32.add (global.get $free) (i32.sub (local.get 2) (i32.const 1)))
            (i32.sub (i32.const 0) (local.get 2))))
        (global.set $free (i32.add (local.get $at) (local.get 3)))
        (local.get $at))
    (func (export "test:random/values#echo") (param i32) (result i32) (local.get 0))
)"#;

/// Writes a WIT of random types.
struct Types {
    seeded: Seeded,
    definitions: String,
    named: usize,
}

impl Types {
    fn wit(seeded: Seeded) -> String {
        let mut types = Self { seeded, definitions: String::new(), named: 0 };
        let value = types.of(LEVELS);
        let definitions = types.definitions;
        format!(
            "package test:random;\ninterface values {{\n{definitions}
             /// What is given.\nrecord given {{\n/// The random part.\nvalue: {value},\npad: {PAD},\n}}
             /// Give it back.\necho: func(value: given) -> given;\n}}\nworld random {{ export values; }}\n"
        )
    }

    fn of(&mut self, levels: usize) -> String {
        const PLAIN: [&str; 13] =
            ["bool", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f32", "f64", "char", "string"];
        if levels == 0 {
            return (*self.seeded.pick(&PLAIN)).to_owned();
        }
        let levels = levels - 1;
        match self.seeded.below(11) {
            0 => format!("list<{}>", self.of(levels)),
            1 => "list<u8>".to_owned(),
            2 | 3 => format!("option<{}>", self.of(levels)),
            4 => {
                let (ok, err) = (self.of(levels), self.of(levels));
                (*self.seeded.pick(&[
                    format!("result<{ok}, {err}>"),
                    format!("result<_, {err}>"),
                    format!("result<{ok}>"),
                    "result".to_owned(),
                ]))
                .clone()
            }
            5 => {
                let items: Vec<_> = (0..=self.seeded.below(3)).map(|_| self.of(levels)).collect();
                format!("tuple<{}>", items.join(", "))
            }
            6 => self.define("record", levels, |of| Some(format!(": {of}"))),
            7 => self.define("variant", levels, |of| Some(format!("({of})"))),
            8 => self.define("enum", 0, |_| None),
            9 => self.define("flags", 0, |_| None),
            _ => self.of(0),
        }
    }

    /// A type with a name, and with docs here and there.
    fn define(&mut self, kind: &str, levels: usize, part: impl Fn(String) -> Option<String>) -> String {
        let parts: Vec<_> = (0..=self.seeded.below(4))
            .map(|index| {
                let docs = if self.seeded.once_in(2) { "/// What it is.\n" } else { "" };
                // A case may be without a value, a field may not.
                let is_bare = kind == "variant" && self.seeded.once_in(3);
                let of = if is_bare { None } else { part(self.of(levels)) };
                format!("{docs}part-{index}{},\n", of.unwrap_or_default())
            })
            .collect();
        self.named += 1;
        let name = format!("{kind}-{}", self.named);
        let _ = write!(self.definitions, "{kind} {name} {{\n{}}}\n", parts.concat());
        name
    }
}

/// A component of which the WIT is true.
fn component(wit: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_source("random.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some("random")).unwrap();
    let mut module = wat::parse_str(ECHO).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}

#[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
fn value(seeded: &mut Seeded, shape: &Shape) -> Val {
    let boxed = |seeded: &mut Seeded, shape: &Option<Box<Shape>>| {
        shape.as_deref().map(|shape| Box::new(value(seeded, shape)))
    };
    match shape {
        Shape::Bool => Val::Bool(seeded.once_in(2)),
        Shape::Integer(integer) => {
            let number = edged(seeded);
            match integer {
                Integer::S8 => Val::S8(number as i8),
                Integer::U8 => Val::U8(number as u8),
                Integer::S16 => Val::S16(number as i16),
                Integer::U16 => Val::U16(number as u16),
                Integer::S32 => Val::S32(number as i32),
                Integer::U32 => Val::U32(number as u32),
            }
        }
        Shape::Long(Long::S64) => Val::S64(edged(seeded).cast_signed()),
        Shape::Long(Long::U64) => Val::U64(edged(seeded)),
        // Of what is no number there is one; the canonical ABI keeps no other.
        Shape::Float(Float::F32) => match f32::from_bits(edged(seeded) as u32) {
            number if number.is_nan() => Val::Float32(f32::NAN),
            number => Val::Float32(number),
        },
        Shape::Float(Float::F64) => match f64::from_bits(edged(seeded)) {
            number if number.is_nan() => Val::Float64(f64::NAN),
            number => Val::Float64(number),
        },
        Shape::Char => Val::Char(*seeded.pick(&['a', '\0', '"', '\\', 'é', '\u{2028}', '𝄞', char::MAX])),
        Shape::String => {
            let length = seeded.below(6);
            Val::String((0..length).map(|_| *seeded.pick(&["a", "\u{0}", "\"", "𝄞", "some", "ok"])).collect())
        }
        Shape::Bytes => {
            let length = seeded.below(70);
            Val::List((0..length).map(|_| Val::U8(seeded.number() as u8)).collect())
        }
        Shape::List(item) => {
            let length = seeded.below(4);
            Val::List((0..length).map(|_| value(seeded, item)).collect())
        }
        Shape::Tuple(items) => Val::Tuple(items.iter().map(|item| value(seeded, item)).collect()),
        Shape::Record(fields) => {
            Val::Record(fields.iter().map(|field| (field.name.clone(), value(seeded, &field.of))).collect())
        }
        Shape::Variant(cases) => {
            let case = seeded.pick(cases).clone();
            Val::Variant(case.name, boxed(seeded, &case.of.map(Box::new)))
        }
        Shape::Enum(cases) => Val::Enum(seeded.pick(cases).name.clone()),
        Shape::Flags(flags) => {
            let set: Vec<_> = flags.iter().filter(|_| seeded.once_in(2)).collect();
            Val::Flags(set.into_iter().map(|flag| flag.name.clone()).collect())
        }
        Shape::Option(_) if seeded.once_in(3) => Val::Option(None),
        Shape::Option(inner) => Val::Option(Some(Box::new(value(seeded, inner)))),
        Shape::Result(ok, err) => {
            Val::Result(if seeded.once_in(2) { Ok(boxed(seeded, ok)) } else { Err(boxed(seeded, err)) })
        }
    }
}

/// Any 64 bits, the edges of every width more often.
fn edged(seeded: &mut Seeded) -> u64 {
    let edge = [0, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 31, (1 << 31) - 1, 0xff, 0x7f80_0000, 0x8000_0000];
    if seeded.once_in(2) { *seeded.pick(&edge) } else { seeded.number() }
}

fn call(engine: &Engine, plugin: &Plugin, args: &Value) -> CallEnd {
    let observer: Arc<dyn CallObserver> = Arc::new(NoObserver);
    engine.invoke(
        plugin,
        &CallRequest {
            tool: "values-echo",
            args: &args.to_string(),
            grants: &Grants::nothing(),
            context: CallContext { idempotency_key: "k", attempt: 1, session: "", receipt: None },
            seed: [7; 32],
            clock_ms: 0,
            timeout: Duration::from_mins(1),
            limits: &Limits::default(),
            observer: &observer,
            cancel: &CancelToken::new(),
            stage: None,
            lock: None,
        },
    )
}

/// Whether docs are where the WIT has some.
fn is_described(schema: &Value) -> bool {
    schema
        .pointer("/properties/value/properties/value/description")
        .is_some_and(|docs| docs.as_str().is_some_and(|docs| docs.starts_with("The random part.")))
}

#[test]
fn random_values_of_random_types_come_back_equal_from_a_component() {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let counted = each("random_values_of_random_types_come_back", 40, |seed| {
        let wit = Types::wit(Seeded::new(seed));
        let foreign = Foreign { wit: Some(wit.clone()), ..Foreign::default() };
        let plugin = engine.load_as("random", &component(&wit), &foreign).unwrap();
        assert_eq!(plugin.undescribed(&Wit::parse("random", &wit).unwrap()), [""; 0], "{wit}");
        let tool = plugin.tool("values-echo").unwrap();
        assert!(tool.description.starts_with("Give it back.\n\nThe function `echo: func(value: record {"));
        assert!(is_described(&tool.input_schema), "{}", tool.input_schema);
        let arguments = jsonschema::validator_for(&tool.input_schema).unwrap();
        let results = jsonschema::validator_for(tool.output_schema.as_ref().unwrap()).unwrap();

        let function = engine.exports(&plugin).unwrap().functions().unwrap().get("values-echo").unwrap();
        let shape = &function.parameters[0].of;
        let mut seeded = Seeded::new(seed);
        for _ in 0..VALUES {
            let given = value(&mut seeded, shape);
            let written = convert::to_json(shape, &given).unwrap();
            assert_eq!(convert::to_val(shape, &written).unwrap(), given, "{written}\n{wit}");
            let args = json!({ "value": written });
            assert!(arguments.is_valid(&args), "{args}\n{wit}");
            let CallEnd::Completed(output) = call(&engine, &plugin, &args) else {
                panic!("{args}\n{wit}");
            };
            let returned = output.structured.unwrap();
            assert!(results.is_valid(&returned), "{returned}\n{wit}");
            assert_eq!(returned["result"], args["value"], "{wit}");
        }
        VALUES
    });
    report(format_args!(
        "seeds {} from {}: {} values came back equal",
        counted.seeds, counted.first, counted.total
    ));
}

#[test]
fn a_wit_of_several_packages_is_one_text_that_says_the_same() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(place.path().join("deps/units")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    write(
        "deps/units/units.wit",
        "package test:units@1.0.0; interface lengths { /// A length.\nrecord length { metres: f64 } }",
    );
    write(
        "main.wit",
        "package test:main; interface rulers { use test:units/lengths@1.0.0.{length};
        /// Measure it.\nmeasure: func(by: length) -> length; } world main { export rulers; }",
    );
    let read = Wit::read(place.path()).unwrap();
    let kept = Wit::parse("kept", &read.to_text().unwrap()).unwrap();
    for wit in [&read, &kept] {
        let function = wit.function(Some("test:main/rulers"), "measure").unwrap();
        assert_eq!(docs::words(&function.docs).as_deref(), Some("Measure it."));
        let mut shape = Shape::Record(vec![part("metres", Shape::Float(Float::F64))]);
        let of_type = wit.describe(&mut shape, &function.params[0].ty).ok().flatten();
        assert_eq!(of_type.as_deref(), Some("A length."));
    }
}

#[test]
fn functions_that_would_go_by_one_name_are_none_of_them_tools() {
    let long = "far-too-long-a-name-for-any-tool-since-it-has-more-than-sixty-four-letters";
    let component = format!(
        r#"(component
            (core module $m (func (export "f")))
            (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f")))
            (instance $one (export "same" (func $f)) (export "other" (func $f)))
            (export "test:twice/one" (instance $one))
            (export "one-same" (func $f))
            (export "{long}" (func $f)))"#
    );
    let bytes = wat::parse_str(component).unwrap();
    let plugin = Engine::new(EngineConfig::default()).unwrap().load("twice", &bytes).unwrap();
    let tools: Vec<_> = plugin.tools().iter().map(|tool| &*tool.name).collect();
    assert_eq!(tools, ["one-other"]);
    let mut unfit: Vec<_> = plugin.unfit_functions().iter().map(|unfit| &*unfit.name).collect();
    unfit.sort_unstable();
    assert_eq!(unfit, [long, "one-same", "test:twice/one#same"]);
}

/// What a value must be, and what is no such value, with the place that the error names.
#[test]
fn what_does_not_fit_its_type_is_told_with_its_place_what_was_expected_and_what_came() {
    let named = |name: &str| part(name, ());
    let record = Shape::Record(vec![
        part("count", Shape::Integer(Integer::U8)),
        part("flags", Shape::Option(Box::new(Shape::Flags(vec![named("a"), named("b")])))),
        part("list", Shape::List(Box::new(Shape::Long(Long::U64)))),
    ]);
    let nested = Shape::Option(Box::new(Shape::Option(Box::new(Shape::Bool))));
    let variant = Shape::Variant(vec![part("none", None), part("some", Some(Shape::Char))]);
    let result = Shape::Result(None, Some(Box::new(Shape::String)));
    for (shape, value, told) in [
        (
            &record,
            json!({ "count": 256, "list": [] }),
            "at `/count`: expected an integer from 0 to 255, got 256",
        ),
        (
            &record,
            json!({ "count": 1.5, "list": [] }),
            "at `/count`: expected an integer from 0 to 255, got 1.5",
        ),
        (&record, json!({ "list": [] }), "at `/count`: expected an integer from 0 to 255, got null"),
        (&record, json!({ "count": 1, "list": [], "x": 1 }), "at `/x`: expected no such field, got 1"),
        (
            &record,
            json!({ "count": 1, "list": ["1", "01"] }),
            "at `/list/1`: expected a string of an integer from 0 to 18446744073709551615, got \"01\"",
        ),
        (
            &record,
            json!({ "count": 1, "list": ["18446744073709551616"] }),
            "at `/list/0`: expected a string of an integer from 0 to 18446744073709551615, got \"18446744073709551616\"",
        ),
        (
            &record,
            json!({ "count": 1, "list": [], "flags": ["c"] }),
            "at `/flags`: expected an array of any of `a`, `b`, or `null`, got [\"c\"]",
        ),
        (&nested, json!(true), "expected `{\"some\": …}`, or `null`, got true"),
        (&nested, json!({ "some": 1 }), "at `/some`: expected `true` or `false`, or `null`, got 1"),
        (&variant, json!("some"), "expected one of `\"none\"`, `{\"some\": …}`, got \"some\""),
        (&variant, json!({ "some": "ab" }), "at `/some`: expected a string of one character, got \"ab\""),
        (&result, json!({ "ok": 1 }), "at `/ok`: expected `null`, got 1"),
        (&result, json!("ok"), "expected `{\"ok\": …}` or `{\"err\": …}`, got \"ok\""),
        (&Shape::Bytes, json!("a"), "expected a string of bytes in Base64, got \"a\""),
        (
            &Shape::Float(Float::F32),
            json!(1e39),
            "expected a number up to 3.4028235e38, or one of `NaN`, `Infinity`, `-Infinity`, got 1e+39",
        ),
    ] {
        let misfit = convert::to_val(shape, &value).unwrap_err().to_string();
        assert_eq!(misfit, told, "{value}");
    }
    // What a reader of the schema may write all the same.
    assert_eq!(convert::to_val(&Shape::Integer(Integer::U8), &json!(2.0)), Ok(Val::U8(2)));
    assert_eq!(convert::to_json(&Shape::Float(Float::F32), &Val::Float32(0.1)), Some(json!(0.1)));
}
