//! The JSON Schemas that are checked in are those of the types, and take and refuse what is read. After a change of the
//! types, write them anew: `DEED_UPDATE=1 cargo test --workspace --test schemas`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{env, fs};

use deed::mission::{Spec, schemas};
use deed_tests::project_root;
use serde_json::{Value, json};

#[test]
fn the_schemas_are_up_to_date() {
    for (name, schema) in schemas() {
        let path = project_root().join("host/schemas").join(name).with_extension("json");
        let expected = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if env::var_os("DEED_UPDATE").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &expected).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "`{}` is not up to date: see the top of this file", path.display());
    }
}

/// `mission` or `batch`, by what `Spec::read` tells them apart.
fn name_of(spec: &Value) -> &'static str {
    if spec.get("calls").is_some() { "batch" } else { "mission" }
}

/// What does not fit the schema of its kind.
fn misfits(spec: &Value) -> Vec<String> {
    let name = name_of(spec);
    let (_, schema) = schemas().into_iter().find(|(known, _)| *known == name).unwrap();
    assert!(jsonschema::meta::is_valid(&schema), "`{name}` is no schema itself");
    let validator = jsonschema::validator_for(&schema).unwrap();
    validator.iter_errors(spec).map(|error| error.to_string()).collect()
}

#[test]
fn every_mission_of_the_tests_fits_its_schema() {
    let mut names = Vec::new();
    for entry in fs::read_dir(project_root().join("tests/missions")).unwrap() {
        let file = entry.unwrap().path().join("mission.json");
        if file.is_file() {
            let spec: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            assert_eq!(misfits(&spec), [""; 0], "{}", file.display());
            names.push(name_of(&spec));
        }
    }
    assert!(names.contains(&"mission") && names.contains(&"batch"), "both kinds were found: {names:?}");
}

#[test]
fn schema_and_reader_refuse_the_same() {
    let mission = json!({ "objective": "Say so", "model": { "script": [{ "say": "So." }] } });
    let batch = json!({ "objective": "Read", "calls": [{ "tool": "read_file" }] });
    let with = |spec: &Value, field: &str, value: Value| {
        let mut spec = spec.clone();
        spec[field] = value;
        spec
    };
    let without = |spec: &Value, field: &str| {
        let mut spec = spec.clone();
        spec.as_object_mut().unwrap().remove(field);
        spec
    };
    let cases = [
        (mission.clone(), true),
        (batch.clone(), true),
        (with(&mission, "network", json!("open")), true),
        (with(&mission, "policy", json!([{ "tool": "*", "decision": "ask" }])), true),
        (with(&batch, "tools", json!(["fs"])), true),
        (with(&mission, "objectives", json!("Say so")), false),
        (with(&mission, "network", json!("ajar")), false),
        (with(&mission, "policy", json!([{ "tool": "*", "decision": "perhaps" }])), false),
        (with(&mission, "grants", json!([{ "tool": "*", "memory_bytes": 65_536, "log_lines": 1 }])), true),
        (with(&mission, "grants", json!([{ "tool": "*", "memory_bytes": 65_535 }])), false),
        (with(&batch, "grants", json!([{ "tool": "*", "output_bytes": 8_388_609 }])), false),
        (with(&mission, "criteria", json!("one")), false),
        (with(&batch, "calls", json!([{ "input": {} }])), false),
        (with(&batch, "model", json!({ "script": [] })), false),
        (without(&mission, "objective"), false),
        (without(&mission, "model"), false),
    ];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mission.json");
    for (spec, fits) in cases {
        assert_eq!(misfits(&spec).is_empty(), fits, "the schema, of {spec}");
        fs::write(&file, spec.to_string()).unwrap();
        assert_eq!(Spec::read(&file).is_ok(), fits, "the reader, of {spec}");
    }
}
