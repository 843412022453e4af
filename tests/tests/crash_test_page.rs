//! The page that `deed crash-test --report` writes, in a browser: what is on it, by mouse, keyboard and screen reader, in both
//! themes. Where there is no Chromium the test says so and does nothing; `DEED_CHROMIUM` names one. `DEED_SCREENSHOTS` names a
//! directory for pictures to look at.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{env, fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use deed_tests::guests::CLAIMS;
use deed_tests::{Chromium, Sandbox, find_chromium};
use serde_json::{Value, json};

/// The case that fails, and what is to be read there.
const FAILING: &str = "4:after_exec";

fn take_picture(browser: &mut Chromium, name: &str) {
    if let Some(directory) = env::var_os("DEED_SCREENSHOTS") {
        let shot = browser.call("Page.captureScreenshot", &json!({ "captureBeyondViewport": true }));
        let bytes = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        fs::write(Path::new(&directory).join(name).with_extension("png"), bytes).unwrap();
    }
}

#[test]
fn the_page_shows_the_table_and_what_differs_and_asks_for_nothing() {
    let Some(program) = find_chromium() else {
        eprintln!("SKIPPED: no Chromium on this machine; install one, or name it by DEED_CHROMIUM");
        return;
    };
    let calls = json!([
        { "tool": "appends", "input": { "path": "counter.log" } },
        { "tool": "no_probe", "input": { "path": "blind.log" } },
        { "tool": "first_attempt_only", "input": { "path": "<i>first.log" } },
        { "tool": "read_file", "input": { "path": "a.txt" } },
        { "tool": "write_file", "input": { "path": "b.txt", "content": "b\n" } },
    ]);
    let batch = json!({ "objective": "Claims", "calls": calls,
        "policy": [{ "tool": "*", "decision": "allow", "contain": "never" }] });
    let sandbox = Sandbox::with(&batch, &[("a.txt", "a\n")]);
    sandbox.install("claims", CLAIMS);
    let page = sandbox.root().join("report.html");
    let deed = sandbox.deed(["crash-test", sandbox.mission().to_str().unwrap()]);
    let deed = deed.args(["--workspace", sandbox.workspace().to_str().unwrap()]);
    let _ = deed.args(["--report", page.to_str().unwrap()]).run().expect_code(1);

    let mut browser = Chromium::start(&program, &sandbox);
    for theme in ["light", "dark"] {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        browser.call("Emulation.setEmulatedMedia", &media);
        browser.events.clear();
        browser.open(&page);
        the_table_is_there(&mut browser);
        it_can_be_read_in(&mut browser, theme);
        take_picture(&mut browser, &format!("{theme}-closed"));
        a_failing_case_opens_by_keyboard(&mut browser);
        take_picture(&mut browser, &format!("{theme}-open"));
        // A narrow window scrolls within the table, and not the page.
        let narrow = json!({ "width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", &narrow);
        let overflow = browser.value("document.documentElement.scrollWidth <= window.innerWidth");
        take_picture(&mut browser, &format!("{theme}-narrow"));
        assert_eq!(overflow, true);
        browser.call("Emulation.clearDeviceMetricsOverride", &json!({}));

        let own = format!("file://{}", page.display());
        for request in browser.events_of("Network.requestWillBeSent") {
            assert_eq!(request["request"]["url"], own, "nothing but the page itself is asked for");
        }
        for method in ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"] {
            assert_eq!(browser.events_of(method).next(), None, "{theme}: {method}");
        }
    }
}

#[track_caller]
fn the_table_is_there(browser: &mut Chromium) {
    let cells = "[...document.querySelectorAll('table.matrix tbody tr')].map(row => [...row.cells].map(cell => cell.innerText.split('\\n')[0].trim()))";
    let rows = browser.value(cells);
    let row = |name: &str| -> Vec<String> {
        let row = rows.as_array().unwrap().iter().find(|row| row[0] == name);
        serde_json::from_value(row.unwrap_or_else(|| panic!("no `{name}` in {rows}")).clone()).unwrap()
    };
    let heads = browser
        .value("[...document.querySelectorAll('table.matrix thead th')].map(cell => cell.innerText.trim())");
    let at = |point: &str| heads.as_array().unwrap().iter().position(|head| head == point).unwrap();
    assert_eq!(row("appends")[at("after_exec")], "repeated");
    assert_eq!(row("no_probe")[at("mid_exec")], "asked");
    assert_eq!(row("first_attempt_only")[at("mid_exec")], "lost");
    assert_eq!(row("read_file")[at("after_commit")], "once");
    assert_eq!(row("read_file")[at("after_receipt")], "–");
    // As a screen reader has it: a table with a caption, and headings of rows and columns.
    let tree = browser.call("Accessibility.getFullAXTree", &json!({}));
    let nodes = tree["nodes"].as_array().unwrap();
    let count = |role: &str| nodes.iter().filter(|node| node["role"]["value"] == role).count();
    assert!(
        count("table") >= 1 && count("rowheader") >= 6 && count("columnheader") >= 7,
        "{}",
        count("table")
    );
    assert!(count("main") == 1 && count("heading") >= 4, "landmarks and headings");
}

/// Text that is read stands out from what is behind it, by the usual measure: 4.5 to 1.
#[track_caller]
fn it_can_be_read_in(browser: &mut Chromium, theme: &str) {
    let contrast = r"
        (() => {
            const light = (colour) => {
                const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map(Number)
                    .map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const behind = (element) => {
                for (let at = element; at; at = at.parentElement) {
                    const colour = getComputedStyle(at).backgroundColor;
                    if (!/, 0\)$/.test(colour) && colour !== 'transparent') return colour;
                }
                return 'rgb(255, 255, 255)';
            };
            const all = [...document.querySelectorAll('h1, h2, p, th, td, a, summary, .badge, .soft')];
            return all.filter(element => element.innerText.trim() && element.checkVisibility()).map(element => {
                const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((x, y) => y - x);
                return { ratio: (a + 0.05) / (b + 0.05), text: element.innerText.slice(0, 40) };
            }).filter(found => found.ratio < 4.5);
        })()";
    assert_eq!(browser.value(contrast), json!([]), "{theme}");
    let body = browser.value("getComputedStyle(document.body).backgroundColor");
    let is_dark = body.as_str().unwrap().starts_with("rgb(22, ");
    assert_eq!(is_dark, theme == "dark", "{body}");
}

#[track_caller]
fn a_failing_case_opens_by_keyboard(browser: &mut Chromium) {
    let is_open = format!("document.querySelector('details[data-case=\"{FAILING}\"]').open");
    assert_eq!(browser.value(&is_open), false, "closed at first");
    let focused = "document.activeElement.getAttribute('href')";
    // From the top of the page, key by key, to the cell of the table.
    let cell = "document.querySelector('table.matrix td.bad a').getAttribute('href')";
    let wanted = browser.value(cell);
    let mut in_table = Value::Bool(false);
    for _ in 0..60 {
        browser.press("Tab", 9);
        in_table = browser.value("document.activeElement.closest('table.matrix') !== null");
        if in_table == true && browser.value(focused) == wanted {
            break;
        }
    }
    assert_eq!((in_table, browser.value(focused)), (Value::Bool(true), wanted), "the cell can be reached");
    browser.press("Enter", 13);
    // What the link leads into is opened within the next frames.
    let opened = format!(
        "new Promise(done => {{ let left = 300; const look = () => {is_open} || !left-- ? done() : requestAnimationFrame(look); look(); }})"
    );
    browser.value(&opened);
    let place = browser.value("location.hash");
    assert_eq!(browser.value(&is_open), true, "{place}");
    let text = format!("document.querySelector('details[data-case=\"{FAILING}\"]').innerText");
    let text = browser.value(&text);
    let text = text.as_str().unwrap();
    assert!(text.contains("observed 2 effects") && text.contains("undisturbed"), "{text}");
    let inserted = "[...document.querySelectorAll('details[open] ins')].map(line => line.innerText)";
    assert_eq!(browser.value(inserted), json!(["tick"]));
}
