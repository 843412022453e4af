//! The JSON Schemas that are checked in are those of the types. After a change of the types, write them anew:
//! `DEED_UPDATE=1 cargo test --workspace --test schemas`.

use std::{env, fs};

use deed_tests::project_root;

#[test]
fn the_schemas_are_up_to_date() {
    for (name, schema) in deed::mission::schemas() {
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
