//! Writing the installed plugins into the user's `deed.toml`, and nothing else in it: comments, order and everything that
//! others wrote stay as they are.

use std::path::Path;

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

use crate::operator::PluginEntry;

/// The table of plugins.
const TABLE: &str = "plugins";

/// `text` with the plugin `name` pinned.
pub(super) fn with(text: &str, name: &str, pin: &PluginEntry) -> Result<String, String> {
    let mut document = read(text)?;
    // What stands at the end of the file would otherwise stand behind the new table.
    let end = document.trailing().as_str().unwrap_or_default().to_owned();
    let is_new = document.get(TABLE).and_then(|plugins| plugins.get(name)).is_none();
    if is_new && !end.trim().is_empty() {
        document.set_trailing("");
    }
    let plugins = document.entry(TABLE).or_insert_with(implicit).as_table_like_mut().ok_or_else(no_table)?;
    let plugin = plugins.entry(name).or_insert_with(|| {
        let mut table = Table::new();
        if !end.trim().is_empty() {
            table.decor_mut().set_prefix(format!("{end}\n"));
        }
        Item::Table(table)
    });
    let plugin = plugin.as_table_like_mut().ok_or_else(no_table)?;
    set(plugin, "digest", Some(pin.digest.to_string()));
    // A path that is no text cannot be written here, and an older one would mislead.
    set(plugin, "source", pin.source.as_deref().and_then(Path::to_str));
    let stubs: Array = pin.stubs.iter().collect();
    set(plugin, "stubs", (!stubs.is_empty()).then_some(stubs));
    set(plugin, "wit", pin.wit.map(|digest| digest.to_string()));
    set_effects(plugin, pin)?;
    Ok(document.to_string())
}

/// `text` without the plugin `name`.
pub(super) fn without(text: &str, name: &str) -> Result<String, String> {
    let mut document = read(text)?;
    if let Some(plugins) = document.get_mut(TABLE).and_then(Item::as_table_like_mut) {
        let removed = plugins.remove(name);
        if plugins.is_empty() {
            document.remove(TABLE);
        }
        // A comment above it may be about anything: it moves to the end.
        let above = removed.as_ref().and_then(|item| item.as_table()?.decor().prefix()?.as_str());
        if let Some(comment) = above.filter(|above| above.contains('#')) {
            let end = document.trailing().as_str().unwrap_or_default().to_owned();
            document.set_trailing(format!("{}\n{end}", comment.trim_end()));
        }
    }
    Ok(document.to_string())
}

fn read(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|error: toml_edit::TomlError| error.to_string().trim_end().to_owned())
}

/// A table that has no heading of its own: `[plugins.greet]` says it already.
fn implicit() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

fn no_table() -> String {
    format!("`{TABLE}` is no table of tables")
}

/// Set the classes of its tools, in the form in which somebody may have written them.
fn set_effects(plugin: &mut dyn TableLike, pin: &PluginEntry) -> Result<(), String> {
    if pin.effects.is_empty() {
        plugin.remove("effects");
        return Ok(());
    }
    let effects = plugin.entry("effects").or_insert_with(|| value(InlineTable::new()));
    let effects = effects.as_table_like_mut().ok_or("`effects` is no table")?;
    let old: Vec<_> = effects.iter().map(|(tool, _)| tool.to_owned()).collect();
    for tool in old.iter().filter(|tool| !pin.effects.contains_key(*tool)) {
        effects.remove(tool);
    }
    for (tool, class) in &pin.effects {
        set(effects, tool, Some(class.to_string()));
    }
    Ok(())
}

/// Set a field, and leave the comment behind it; or remove it.
fn set(table: &mut dyn TableLike, field: &str, new: Option<impl Into<Value>>) {
    let Some(new) = new else {
        table.remove(field);
        return;
    };
    let Some(old) = table.get_mut(field).and_then(Item::as_value_mut) else {
        table.insert(field, value(new));
        return;
    };
    let mut new = new.into();
    *new.decor_mut() = old.decor().clone();
    *old = new;
}

#[cfg(test)]
mod tests {
    use deed_journal::{Digest, EffectClass};

    use super::*;

    fn pin(digest: Digest, source: Option<&str>) -> PluginEntry {
        PluginEntry {
            digest,
            source: source.map(Into::into),
            effects: [].into(),
            stubs: [].into(),
            wit: None,
        }
    }

    #[test]
    fn what_others_wrote_stays_as_it_is() {
        let before = "# Mine.\nanswer_within_ms = 5   # soon\n\n[[policy]]\ntool = 'shell'\ndecision = \"ask\" # always\n";
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let added = with(before, "greet", &pin(one, Some("/a/greet.wasm"))).unwrap();
        let table = format!("\n[plugins.greet]\ndigest = \"{one}\"\nsource = \"/a/greet.wasm\"\n");
        assert_eq!(added, format!("{before}{table}"));
        let commented = added.replace("\"\nsource", "\" # trusted\nsource");
        let updated = with(&commented, "greet", &pin(other, None)).unwrap();
        assert_eq!(updated, format!("{before}\n[plugins.greet]\ndigest = \"{other}\" # trusted\n"));
        assert_eq!(without(&updated, "greet").unwrap(), before);
        assert_eq!(without(before, "greet").unwrap(), before);
    }

    #[test]
    fn a_comment_at_the_end_stays_where_it_is() {
        let digest = Digest::of(b"one");
        for before in ["# Mine.\n", "answer_within_ms = 5\n# The end.\n"] {
            let added = with(before, "greet", &pin(digest, None)).unwrap();
            assert!(added.starts_with(before) && added.contains("[plugins.greet]"), "{added}");
            assert_eq!(without(&added, "greet").unwrap(), before);
        }
    }

    #[test]
    fn tables_that_were_written_in_other_ways_are_edited_too() {
        let digest = Digest::of(b"one");
        for before in ["plugins = {}\n", "[plugins]\n", "[plugins]\nother = { digest = \"00\" }\n", ""] {
            let added = with(before, "greet", &pin(digest, None)).unwrap();
            let read: toml::Table = added.parse().unwrap();
            assert_eq!(read["plugins"]["greet"]["digest"].as_str(), Some(&*digest.to_string()), "{added}");
        }
        assert!(with("plugins = 5\n", "greet", &pin(digest, None)).unwrap_err().contains("plugins"));
        assert!(with("plugins = \n", "greet", &pin(digest, None)).is_err());
    }

    #[test]
    fn what_is_said_of_a_foreign_component_is_edited_in_the_form_in_which_it_was_written() {
        let mut entry = pin(Digest::of(b"one"), None);
        entry.effects = [("add".to_owned(), EffectClass::Pure)].into();
        entry.stubs = ["a:b/c".to_owned()].into();
        let added = with("", "calc", &entry).unwrap();
        let said = format!(
            "[plugins.calc]\ndigest = \"{}\"\nstubs = [\"a:b/c\"]\neffects = {{ add = \"pure\" }}\n",
            entry.digest
        );
        assert_eq!(added, said);
        let by_hand = "[plugins.calc]\ndigest = \"0\"\n[plugins.calc.effects]\nadd = \"pure\" # checked\nold = \"pure\"\n";
        let edited = with(by_hand, "calc", &entry).unwrap();
        assert!(edited.ends_with("[plugins.calc.effects]\nadd = \"pure\" # checked\n"), "{edited}");
        entry.effects.clear();
        entry.stubs.clear();
        assert!(!with(&edited, "calc", &entry).unwrap().contains("effects"));
    }
}
