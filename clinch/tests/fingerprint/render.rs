//! Writes a submission down, each time in another of the ways in which a client may write it.

use bytes::Bytes;
use clinch::submit::{Fingerprint, Params};

use crate::model::{Bin, Body, Json, Part, Submission};

/// Throws of dice from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `sides` (SplitMix64).
    pub(crate) fn throw(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(sides.max(1)).unwrap()).unwrap()
    }

    pub(crate) fn one_in(&mut self, sides: usize) -> bool {
        self.throw(sides) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.throw(from.len())]
    }

    /// Another order in which the items of one name keep theirs.
    fn reorder<N: PartialEq, V>(&mut self, list: &mut [(N, V)]) {
        for _ in 0..list.len() * list.len() {
            let at = self.throw(list.len() - 1);
            if at + 1 < list.len() && list[at].0 != list[at + 1].0 {
                list.swap(at, at + 1);
            }
        }
    }
}

/// A submission as it goes over the wire.
#[derive(Debug)]
pub(crate) struct Wire {
    path: Option<String>,
    path_params: Vec<(String, String)>,
    query: String,
    arguments: Vec<(String, String)>,
    content_type: Option<Bin>,
    content_encoding: Option<Bin>,
    body: Option<Bytes>,
}

impl Wire {
    pub(crate) fn fingerprint(&self, exclude: &[String]) -> Fingerprint {
        let mut params = Params::new().exclude(exclude).query(&self.query);
        if let Some(path) = &self.path {
            params = params.path(path);
        }
        for (name, value) in &self.path_params {
            params = params.path_param(name, value);
        }
        for (name, json) in &self.arguments {
            params = params.json(name, json);
        }
        if let Some(body) = &self.body {
            params = params.body(self.content_type.as_deref(), self.content_encoding.as_deref(), body);
        }
        params.fingerprint().unwrap()
    }
}

pub(crate) fn render(submission: &Submission, dice: &mut Dice) -> Wire {
    let Submission { path, mut path_params, mut query, mut arguments, body } = submission.clone();
    dice.reorder(&mut path_params);
    dice.reorder(&mut query);
    dice.reorder(&mut arguments);
    let (content_type, bytes) = match &body {
        Body::None => (any_type(dice), Bin::new()),
        // What starts like this has no boundary, and is no JSON unless it is a number; then it is bytes, whatever its type says.
        Body::Bytes(bytes) if bytes.is_empty() || (bytes[0] == b'-' && !is_json(bytes)) => {
            (any_type(dice), bytes.clone())
        }
        Body::Bytes(bytes) => (dice.pick(&[None, Some("text/plain"), Some("image/png")]), bytes.clone()),
        Body::Form(fields) => {
            let mut fields = fields.clone();
            dice.reorder(&mut fields);
            (Some("application/x-www-form-urlencoded"), form(&fields, dice).into_bytes())
        }
        Body::Json(value) => {
            let types = ["application/json", "Application/Json; charset=utf-8", "application/x+json"];
            (Some(dice.pick(&types)), json(value, dice).into_bytes())
        }
        Body::Multipart(parts) => multipart(parts, dice),
        Body::Encoded(_, bytes) => (any_type(dice), bytes.clone()),
    };
    let content_encoding = match &body {
        Body::Encoded(coding, _) => Some(other_case(coding, dice)),
        _ => dice.pick(&[None, None, Some("identity"), Some(" Identity"), Some("")]).map(str::to_owned),
    };
    let left_out = body == Body::None && dice.one_in(2);
    Wire {
        path,
        path_params,
        query: form(&query, dice),
        arguments: arguments.into_iter().map(|(name, value)| (name, json(&value, dice))).collect(),
        content_type: content_type.map(|text| text.as_bytes().to_vec()),
        content_encoding: content_encoding.map(String::into_bytes),
        body: (!left_out).then(|| Bytes::from(bytes)),
    }
}

fn any_type(dice: &mut Dice) -> Option<&'static str> {
    dice.pick(&[
        None,
        Some("text/plain"),
        Some("application/json"),
        Some("multipart/form-data; boundary=zz"),
        Some("multipart/form-data"),
    ])
}

fn other_case(text: &str, dice: &mut Dice) -> String {
    text.chars().map(|c| if dice.one_in(2) { c.to_ascii_uppercase() } else { c }).collect()
}

/// A query or form.
fn form(fields: &[(Bin, Bin)], dice: &mut Dice) -> String {
    let mut text = String::new();
    let and = |text: &mut String, dice: &mut Dice, least: usize| {
        text.push_str(&"&".repeat(least + if dice.one_in(8) { 2 } else { 0 }));
    };
    for (number, (name, value)) in fields.iter().enumerate() {
        and(&mut text, dice, usize::from(number > 0));
        percent(name, false, &mut text, dice);
        if name.is_empty() || !value.is_empty() || dice.one_in(2) {
            text.push('=');
        }
        percent(value, true, &mut text, dice);
    }
    and(&mut text, dice, 0);
    text
}

fn percent(bytes: &[u8], is_value: bool, text: &mut String, dice: &mut Dice) {
    for byte in bytes {
        let plain = match byte {
            b' ' if dice.one_in(2) => Some('+'),
            b'=' if is_value && dice.one_in(2) => Some('='),
            b'&' | b'=' | b'+' | b'%' | b' ' => None,
            0x21..=0x7e if !dice.one_in(6) => Some(char::from(*byte)),
            _ => None,
        };
        match plain {
            Some(c) => text.push(c),
            None if dice.one_in(2) => *text += &format!("%{byte:02x}"),
            None => *text += &format!("%{byte:02X}"),
        }
    }
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

pub(crate) fn json(value: &Json, dice: &mut Dice) -> String {
    let mut text = String::new();
    write_json(value, &mut text, dice);
    blank(&mut text, dice);
    text
}

fn blank(text: &mut String, dice: &mut Dice) {
    if dice.one_in(4) {
        text.push_str(dice.pick(&[" ", "\n", "\t", "\r\n  "]));
    }
}

fn write_json(value: &Json, text: &mut String, dice: &mut Dice) {
    blank(text, dice);
    match value {
        Json::Null => text.push_str("null"),
        Json::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => text.push_str(number),
        Json::Text(string) => quoted(string, text, dice),
        Json::Array(items) => {
            text.push('[');
            for (number, item) in items.iter().enumerate() {
                text.push_str(if number > 0 { "," } else { "" });
                write_json(item, text, dice);
                blank(text, dice);
            }
            blank(text, dice);
            text.push(']');
        }
        Json::Object(fields) => {
            let mut fields = fields.clone();
            dice.reorder(&mut fields);
            text.push('{');
            for (number, (key, value)) in fields.iter().enumerate() {
                text.push_str(if number > 0 { "," } else { "" });
                blank(text, dice);
                quoted(key, text, dice);
                blank(text, dice);
                text.push(':');
                write_json(value, text, dice);
                blank(text, dice);
            }
            blank(text, dice);
            text.push('}');
        }
    }
}

fn quoted(string: &str, text: &mut String, dice: &mut Dice) {
    text.push('"');
    for c in string.chars() {
        let short = match c {
            '\n' => Some("\\n"),
            '\t' => Some("\\t"),
            '"' => Some("\\\""),
            '\\' => Some("\\\\"),
            '/' => Some("\\/"),
            _ => None,
        };
        let needs = c < ' ' || c == '"' || c == '\\';
        match short {
            _ if !needs && !dice.one_in(6) => text.push(c),
            Some(short) if dice.one_in(2) => text.push_str(short),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    *text +=
                        &if dice.one_in(2) { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") };
                }
            }
        }
    }
    text.push('"');
}

fn multipart(parts: &[(String, Part)], dice: &mut Dice) -> (Option<&'static str>, Bin) {
    let (content_type, boundary) = dice.pick(&[
        ("multipart/form-data; boundary=XyZ", "XyZ"),
        ("Multipart/Form-Data; boundary=\"----Q 7\"", "----Q 7"),
    ]);
    let mut parts = parts.to_vec();
    dice.reorder(&mut parts);
    let mut body = dice.pick(&["", "before\r\n", "\r\n"]).as_bytes().to_vec();
    for (name, part) in &parts {
        let mut headers = vec![disposition(name, part.file.as_deref(), dice)];
        for extra in ["Content-Type: text/plain", "X-Any: name=b"] {
            if dice.one_in(3) {
                headers.insert(dice.throw(headers.len() + 1), extra.to_owned());
            }
        }
        body.extend(format!("--{boundary}\r\n{}\r\n\r\n", headers.join("\r\n")).as_bytes());
        body.extend(&part.content);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--{}", dice.pick(&["", "\r\n", "after"])).as_bytes());
    (Some(content_type), body)
}

fn disposition(name: &str, file: Option<&str>, dice: &mut Dice) -> String {
    let mut parameters = vec![format!("name={}", header_value(name, dice))];
    if let Some(file) = file {
        let at = dice.throw(2);
        parameters.insert(at, format!("filename={}", header_value(file, dice)));
    }
    let semicolon = dice.pick(&["; ", ";", " ; "]);
    let header = dice.pick(&["Content-Disposition: form-data", "content-disposition:Form-Data"]);
    format!("{header}{semicolon}{}", parameters.join(semicolon))
}

fn header_value(text: &str, dice: &mut Dice) -> String {
    let is_token = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    if is_token && dice.one_in(3) { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\\\"")) }
}
