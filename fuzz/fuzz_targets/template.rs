//! Two lists of values make the same key exactly when they are the same list, whatever the template.
#![no_main]

use std::fmt::Display;

use arbitrary::Arbitrary;
use clinch::{Key, KeyTemplate};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    template: &'a str,
    one: Vec<&'a str>,
    other: Vec<&'a str>,
}

fn key(template: &KeyTemplate, values: &[&str]) -> Option<Key> {
    let named = template.placeholders().zip(values.iter().chain(std::iter::repeat(&"")));
    let named: Vec<(&str, &dyn Display)> = named.map(|(name, value)| (name, value as &dyn Display)).collect();
    template.key(&named).ok()
}

fuzz_target!(|input: Input<'_>| {
    let _ = Key::new(input.template);
    let Ok(template) = KeyTemplate::new(input.template) else { return };
    let names: Vec<&str> = template.placeholders().collect();
    // A name that stands twice has one value.
    if (1..names.len()).any(|i| names[..i].contains(&names[i])) {
        return;
    }
    let (Some(one), Some(other)) = (key(&template, &input.one), key(&template, &input.other)) else { return };
    let value = |values: &[&str], i: usize| values.get(i).copied().unwrap_or_default().to_owned();
    let same = (0..names.len()).all(|i| value(&input.one, i) == value(&input.other, i));
    assert_eq!(one == other, same, "{one} / {other}");
});
