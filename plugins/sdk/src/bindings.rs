//! The generated bindings of every interface that a tool may use or must export.
//!
//! One world imports all of them. The linker drops the functions that a component does not call, and the component
//! encoder then drops the interface, so a tool that commits nothing does not import `deed:git`.

#![expect(missing_docs, clippy::pedantic, reason = "generated; the documents are those of the WIT")]

wit_bindgen::generate!({
    inline: "
        package deed:sdk@0.1.0;

        world guest {
            include deed:tool/tool-with-probe@0.1.0;
            include deed:workspace/imports@0.1.0;
            include deed:process/imports@0.1.0;
            include deed:git/imports@0.1.0;
        }
    ",
    path: ["../../wit/tool", "../../wit/workspace", "../../wit/process", "../../wit/git"],
    world: "deed:sdk/guest",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "export_guest",
    default_bindings_module: "deed_sdk::bindings",
});
