//! `wit/REFERENCE.md` is what the interface says of itself: every package, world, interface, function and type, with its docs.
//! An item without docs, or without the version that brought it, is a failure. After a change of the interface, write the page
//! anew: `DEED_UPDATE=1 cargo test --workspace --test wit_reference`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::{env, fs};

use deed_tests::project_root;
use wit_parser::{
    Docs, Function, Handle, Interface, InterfaceId, PackageId, Resolve, Stability, Type, TypeDef,
    TypeDefKind, TypeOwner, World, WorldItem,
};

const HEAD: &str = "\
# The interface of tools

Every package in `wit/`, as its files document it. A component exports `deed:tool/tools`, and `deed:tool/reconcile` if it has a probe;
it imports what it uses. Files, clocks, randomness and HTTP are plain `wasi`, which is documented at <https://wasi.dev>.
`plugins/GUIDE.md` shows how a tool is written.

This page is made from the interface. After a change there: `DEED_UPDATE=1 cargo test --workspace --test wit_reference`
";

/// The page in the making, and what is missing from the interface.
struct Page<'a> {
    resolve: &'a Resolve,
    text: String,
    faults: Vec<String>,
}

/// The end of a link to a heading, as forges make it of the heading's text.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

impl Page<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The documentation of `what`.
    fn docs(&mut self, what: &str, docs: &Docs) -> String {
        let text = docs.contents.as_deref().unwrap_or_default().trim().to_owned();
        if text.is_empty() {
            self.faults.push(format!("`{what}` has no docs"));
        }
        text
    }

    fn since(&mut self, what: &str, stability: &Stability) {
        match stability {
            Stability::Stable { since, deprecated: None } => self.line(&format!("Since {since}.\n")),
            Stability::Stable { since, deprecated: Some(version) } => {
                self.line(&format!("Since {since}; deprecated since {version}.\n"));
            }
            Stability::Unstable { feature, .. } => self.line(&format!("Unstable: `{feature}`.\n")),
            Stability::Unknown => self.faults.push(format!("`{what}` has no `@since`")),
        }
    }

    /// A heading, the docs below it, and since when there is such a thing.
    fn entry(&mut self, level: usize, (kind, name): (&str, &str), docs: &Docs, stability: &Stability) {
        let docs = self.docs(name, docs);
        self.line(&format!("{} {kind} `{name}`\n\n{docs}\n", "#".repeat(level)));
        self.since(name, stability);
    }

    fn package(&mut self, id: PackageId) {
        let package = &self.resolve.packages[id];
        let name = package.name.to_string();
        self.line(&format!("## Package `{name}`\n"));
        for &world in package.worlds.values() {
            self.world(&name, &self.resolve.worlds[world]);
        }
        for &interface in package.interfaces.values() {
            self.interface(&self.resolve.interfaces[interface]);
        }
    }

    fn world(&mut self, package: &str, world: &World) {
        let (package, _) = package.split_once('@').unwrap();
        let name = format!("{package}/{}", world.name);
        self.entry(3, ("world", &name), &world.docs, &world.stability);
        for (items, verb) in [(&world.imports, "imports"), (&world.exports, "exports")] {
            for item in items.values() {
                let WorldItem::Interface { id, .. } = item else {
                    panic!("`{name}` {verb} something that this page cannot show: {item:?}")
                };
                let link = self.interface_link(*id);
                self.line(&format!("- {verb} {link}"));
            }
        }
        self.line("");
    }

    fn interface_link(&self, id: InterfaceId) -> String {
        let interface = &self.resolve.interfaces[id];
        let name = self.qualified(interface);
        format!("[`{name}`](#{})", anchor(&format!("interface {name}")))
    }

    /// `deed:tool/tools`, without the version.
    fn qualified(&self, interface: &Interface) -> String {
        let package = &self.resolve.packages[interface.package.unwrap()].name;
        format!("{}:{}/{}", package.namespace, package.name, interface.name.as_deref().unwrap())
    }

    fn interface(&mut self, interface: &Interface) {
        let name = self.qualified(interface);
        self.entry(3, ("interface", &name), &interface.docs, &interface.stability);
        let short = interface.name.as_deref().unwrap();
        for function in interface.functions.values() {
            self.function(short, function);
        }
        for &id in interface.types.values() {
            let def = &self.resolve.types[id];
            // What is taken over from another interface is told there.
            if !matches!(def.kind, TypeDefKind::Type(Type::Id(_))) {
                self.type_def(short, def);
            }
        }
    }

    fn function(&mut self, interface: &str, function: &Function) {
        let name = format!("{interface}.{}", function.name);
        self.entry(4, ("function", &name), &function.docs, &function.stability);
        let params = function.params.iter().map(|param| format!("{}: {}", param.name, self.name(&param.ty)));
        let params = params.collect::<Vec<_>>().join(", ");
        let result = function.result.as_ref().map(|ty| format!(" -> {}", self.name(ty))).unwrap_or_default();
        self.line(&format!("```wit\n{}: func({params}){result}\n```\n", function.name));
        let types = function.params.iter().map(|param| &param.ty).chain(&function.result);
        let mut links: Vec<_> = types.flat_map(|ty| self.links(ty)).collect();
        links.sort();
        links.dedup();
        if !links.is_empty() {
            let links: Vec<_> = links.iter().map(|(name, link)| format!("[`{name}`]({link})")).collect();
            self.line(&format!("Types: {}.\n", links.join(", ")));
        }
    }

    fn type_def(&mut self, interface: &str, def: &TypeDef) {
        let name = format!("{interface}.{}", def.name.as_deref().unwrap());
        let parts: Vec<(&str, Option<&Type>, &Docs)> = match &def.kind {
            TypeDefKind::Record(record) => {
                let fields = record.fields.iter();
                fields.map(|field| (&*field.name, Some(&field.ty), &field.docs)).collect()
            }
            TypeDefKind::Variant(variant) => {
                variant.cases.iter().map(|case| (&*case.name, case.ty.as_ref(), &case.docs)).collect()
            }
            TypeDefKind::Enum(cases) => {
                cases.cases.iter().map(|case| (&*case.name, None, &case.docs)).collect()
            }
            TypeDefKind::Flags(flags) => {
                flags.flags.iter().map(|flag| (&*flag.name, None, &flag.docs)).collect()
            }
            TypeDefKind::Resource => Vec::new(),
            other => panic!("`{name}` is something that this page cannot show: {other:?}"),
        };
        self.entry(4, (def.kind.as_str(), &name), &def.docs, &def.stability);
        for (part, ty, docs) in parts {
            let docs = self.docs(&format!("{name}.{part}"), docs);
            let ty = ty.map(|ty| format!(" ({})", self.linked(ty))).unwrap_or_default();
            let docs = docs.split_whitespace().collect::<Vec<_>>().join(" ");
            self.line(&format!("- `{part}`{ty}: {docs}"));
        }
        self.line("");
    }

    /// A type as it is written, with a link to the first of the interface's own in it.
    fn linked(&self, ty: &Type) -> String {
        let name = self.name(ty);
        match self.links(ty).first() {
            Some((_, link)) => format!("[`{name}`]({link})"),
            None => format!("`{name}`"),
        }
    }

    /// A type as it is written.
    fn name(&self, ty: &Type) -> String {
        let Type::Id(id) = ty else { return plain_name(ty).to_owned() };
        let part = |ty: &Option<Type>| ty.as_ref().map_or_else(|| "_".to_owned(), |ty| self.name(ty));
        let def = &self.resolve.types[*id];
        match &def.kind {
            TypeDefKind::Option(ty) => format!("option<{}>", self.name(ty)),
            TypeDefKind::List(ty) => format!("list<{}>", self.name(ty)),
            TypeDefKind::Result(result) if result.err.is_none() => format!("result<{}>", part(&result.ok)),
            TypeDefKind::Result(result) => format!("result<{}, {}>", part(&result.ok), part(&result.err)),
            TypeDefKind::Tuple(tuple) => {
                let types: Vec<_> = tuple.types.iter().map(|ty| self.name(ty)).collect();
                format!("tuple<{}>", types.join(", "))
            }
            TypeDefKind::Handle(Handle::Own(of)) => self.name(&Type::Id(*of)),
            TypeDefKind::Handle(Handle::Borrow(of)) => format!("borrow<{}>", self.name(&Type::Id(*of))),
            _ => def.name.clone().unwrap(),
        }
    }

    /// The interface's own types in a type: each with the link to it.
    fn links(&self, ty: &Type) -> Vec<(String, String)> {
        let Type::Id(id) = ty else { return Vec::new() };
        let def = &self.resolve.types[*id];
        match &def.kind {
            TypeDefKind::Type(of) | TypeDefKind::Option(of) | TypeDefKind::List(of) => self.links(of),
            TypeDefKind::Handle(Handle::Own(of) | Handle::Borrow(of)) => self.links(&Type::Id(*of)),
            TypeDefKind::Result(result) => {
                result.ok.iter().chain(&result.err).flat_map(|ty| self.links(ty)).collect()
            }
            TypeDefKind::Tuple(tuple) => tuple.types.iter().flat_map(|ty| self.links(ty)).collect(),
            kind => {
                let TypeOwner::Interface(owner) = def.owner else {
                    panic!("a type of no interface: {def:?}")
                };
                let interface = self.resolve.interfaces[owner].name.as_deref().unwrap();
                let name = def.name.clone().unwrap();
                let link = format!("#{}", anchor(&format!("{} {interface}.{name}", kind.as_str())));
                vec![(name, link)]
            }
        }
    }
}

fn plain_name(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "bool",
        Type::U8 => "u8",
        Type::U16 => "u16",
        Type::U32 => "u32",
        Type::U64 => "u64",
        Type::S8 => "s8",
        Type::S16 => "s16",
        Type::S32 => "s32",
        Type::S64 => "s64",
        Type::F32 => "f32",
        Type::F64 => "f64",
        Type::Char => "char",
        Type::String => "string",
        Type::ErrorContext => "error-context",
        Type::Id(_) => unreachable!("told by its definition"),
    }
}

/// Every package of `wit/`.
fn packages() -> (Resolve, Vec<PackageId>) {
    let mut resolve = Resolve::new();
    let entries = fs::read_dir(project_root().join("wit")).unwrap().map(|entry| entry.unwrap().path());
    let mut directories: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    // What a tool has to export comes first, what it may import after that.
    directories.sort_by_key(|path| (!path.ends_with("tool"), path.clone()));
    let ids = directories.iter().map(|path| resolve.push_dir(path).unwrap().0).collect();
    (resolve, ids)
}

/// The page, and what is missing.
fn page(resolve: &Resolve, packages: &[PackageId]) -> (String, Vec<String>) {
    let mut page = Page { resolve, text: HEAD.to_owned(), faults: Vec::new() };
    page.line("");
    for &id in packages {
        let package = &resolve.packages[id];
        let interfaces = package.interfaces.values().map(|&id| page.interface_link(id));
        let line = format!("- `{}`: {}", package.name, interfaces.collect::<Vec<_>>().join(", "));
        page.line(&line);
    }
    page.line("");
    for &id in packages {
        page.package(id);
    }
    let text = page.text.trim_end().to_owned() + "\n";
    (text, page.faults)
}

#[test]
fn the_reference_is_up_to_date_and_every_item_of_the_interface_is_documented() {
    let (resolve, packages) = packages();
    let (expected, faults) = page(&resolve, &packages);
    assert!(faults.is_empty(), "the interface does not say all of itself:\n{}", faults.join("\n"));
    let path = project_root().join("wit/REFERENCE.md");
    if env::var_os("DEED_UPDATE").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "`wit/REFERENCE.md` is not up to date: type `DEED_UPDATE=1 cargo test --workspace --test wit_reference`"
    );
}

#[test]
fn every_link_of_the_reference_leads_to_one_heading() {
    let (resolve, packages) = packages();
    let (text, _) = page(&resolve, &packages);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchors: Vec<_> = headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect();
    let distinct: BTreeSet<_> = anchors.iter().map(String::as_str).collect();
    assert_eq!(distinct.len(), anchors.len(), "two headings have one anchor: {anchors:?}");
    let links: Vec<_> = text.split("](#").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    assert!(links.len() > 50, "the links were found: {}", links.len());
    let astray: Vec<_> = links.into_iter().filter(|link| !distinct.contains(link)).collect();
    assert_eq!(astray, [""; 0]);
}

#[test]
fn what_says_nothing_of_itself_is_noticed() {
    let mut resolve = Resolve::new();
    let bare = "package a:b@0.1.0;\ninterface i { f: func(); record r { x: u8 } }\n/// Said.\n@since(version = 0.1.0)\nworld w { import i; }\n";
    let id = resolve.push_str("b.wit", bare).unwrap();
    let (_, faults) = page(&resolve, &[id]);
    let mut said = String::new();
    for name in ["a:b/i", "i.f", "i.r"] {
        writeln!(said, "`{name}` has no docs\n`{name}` has no `@since`").unwrap();
    }
    said.push_str("`i.r.x` has no docs\n");
    assert_eq!(faults.join("\n") + "\n", said);
}
