//! One small change to a submission: the kind that a careless comparison overlooks, or sees where there is none.

use crate::model::{Bin, Body, CODINGS, Json, NAMES, NUMBERS, Part, Submission};
use crate::render::{Dice, json};

pub(crate) fn change(submission: &mut Submission, dice: &mut Dice) {
    match dice.throw(12) {
        0 => change_path(submission, dice),
        1 => move_field(submission),
        2 if !submission.path_params.is_empty() => {
            let mut fields = bins(&submission.path_params);
            change_fields(&mut fields, dice);
            if let Some(fields) = texts(&fields) {
                submission.path_params = fields;
            }
        }
        3 if !submission.query.is_empty() => change_fields(&mut submission.query, dice),
        4..=6 if !submission.arguments.is_empty() => change_arguments(&mut submission.arguments, dice),
        7 => move_body(submission, dice),
        _ => change_body(&mut submission.body, dice),
    }
}

fn bins(fields: &[(String, String)]) -> Vec<(Bin, Bin)> {
    fields.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes())).collect()
}

/// If all of them are text.
fn texts(fields: &[(Bin, Bin)]) -> Option<Vec<(String, String)>> {
    let text = |bytes: &Bin| String::from_utf8(bytes.clone()).ok();
    fields.iter().map(|(name, value)| Some((text(name)?, text(value)?))).collect()
}

fn change_path(submission: &mut Submission, dice: &mut Dice) {
    match submission.path.take() {
        None => submission.path = Some(String::new()),
        Some(path) if dice.one_in(2) => submission.path_params.push((String::new(), path)),
        Some(path) => submission.path = Some(path + "a"),
    }
}

/// A parameter of the path becomes one of the query, or the other way round.
fn move_field(submission: &mut Submission) {
    if let Some((name, value)) = submission.path_params.pop() {
        submission.query.push((name.into_bytes(), value.into_bytes()));
    } else if let Some(field) = submission.query.pop() {
        match texts(std::slice::from_ref(&field)) {
            Some(field) => submission.path_params.extend(field),
            None => submission.query.push(field),
        }
    }
}

/// Fields run into each other, change places, or are there once more or less.
fn change_fields(fields: &mut Vec<(Bin, Bin)>, dice: &mut Dice) {
    if change_list(fields, dice) {
        return;
    }
    let at = dice.throw(fields.len());
    let next = (at + 1) % fields.len();
    match dice.throw(7) {
        0 => fields[at].0 = dice.pick(&NAMES).as_bytes().to_vec(),
        5 => change_bytes(&mut fields[at].0, dice),
        1 => {
            if let Some(byte) = fields[at].0.pop() {
                fields[at].1.insert(0, byte);
            }
        }
        2 => {
            if let Some(byte) = fields[at].1.pop() {
                fields[next].0.insert(0, byte);
            }
        }
        3 => {
            let (name, value) = fields[at].clone();
            fields[at] = (value, name);
        }
        4 => {
            let value = fields[at].1.clone();
            fields[at].1 = fields[next].1.clone();
            fields[next].1 = value;
        }
        _ => change_bytes(&mut fields[at].1, dice),
    }
}

/// Swaps, drops, doubles or adds an item; false if nothing was done.
fn change_list<T: Clone>(list: &mut Vec<T>, dice: &mut Dice) -> bool {
    if list.is_empty() {
        return true;
    }
    let (at, other) = (dice.throw(list.len()), dice.throw(list.len()));
    match dice.throw(6) {
        0 | 1 => list.swap(at, other),
        2 => drop(list.remove(at)),
        3 => list.insert(other, list[at].clone()),
        _ => return false,
    }
    true
}

fn change_bytes(bytes: &mut Bin, dice: &mut Dice) {
    match bytes.last().copied() {
        Some(0xff) => *bytes.last_mut().unwrap() = 0xfe,
        Some(b'+') => *bytes.last_mut().unwrap() = b' ',
        Some(_) if dice.one_in(2) => drop(bytes.pop()),
        _ => bytes.push(dice.pick(b"a1\xff+")),
    }
}

fn change_arguments(arguments: &mut Vec<(String, Json)>, dice: &mut Dice) {
    if dice.one_in(3) && change_list(arguments, dice) {
        return;
    }
    let at = dice.throw(arguments.len());
    if let Some((name, value)) = arguments.get_mut(at) {
        match (dice.throw(5), &mut *value) {
            (0, _) => *name = dice.pick(&["order", "at", "a"]).to_owned(),
            // The fields of a request become parameters, or the other way round.
            (1, Json::Object(fields)) => {
                let fields = std::mem::take(fields);
                arguments.remove(at);
                arguments.extend(fields);
            }
            (2, _) => *value = Json::Object(vec![(name.clone(), value.clone())]),
            _ => change_json(value, dice),
        }
    }
}

/// What was in the body is somewhere else.
fn move_body(submission: &mut Submission, dice: &mut Dice) {
    let body = std::mem::replace(&mut submission.body, Body::None);
    submission.body = match (body, dice.throw(3)) {
        (Body::None, 0) => Body::Form(submission.query.clone()),
        (Body::None, _) => dice.pick(&[Body::Bytes(Bin::new()), Body::Json(Json::Null)].each_ref()).clone(),
        (Body::Form(fields), 0) => {
            submission.query.extend(fields);
            Body::None
        }
        (Body::Form(fields), 1) => {
            let text = |bytes: &Bin| String::from_utf8_lossy(bytes).into_owned();
            Body::Json(Json::Object(fields.iter().map(|(n, v)| (text(n), Json::Text(text(v)))).collect()))
        }
        (Body::Form(fields), _) => {
            Body::Multipart(texts(&fields).unwrap_or_default().into_iter().filter_map(plain_part).collect())
        }
        (Body::Json(value), 0) => Body::Bytes(json(&value, dice).into_bytes()),
        (Body::Json(Json::Object(fields)), 1) => {
            submission.arguments.extend(fields);
            Body::None
        }
        (Body::Json(value), _) => Body::Json(Json::Array(vec![value])),
        (Body::Bytes(bytes), _) => Body::Encoded("gzip".to_owned(), bytes),
        (Body::Encoded(_, bytes), 0) => Body::Bytes(bytes),
        (Body::Encoded(coding, bytes), _) => {
            Body::Encoded(String::new() + dice.pick(&CODINGS), [coding.into_bytes(), bytes].concat())
        }
        (Body::Multipart(parts), _) => {
            Body::Form(parts.into_iter().map(|(name, part)| (name.into_bytes(), part.content)).collect())
        }
    };
}

/// A part without a file name, if a header can hold its name.
fn plain_part((name, value): (String, String)) -> Option<(String, Part)> {
    let fits = NAMES.contains(&name.as_str());
    fits.then(|| (name, Part { file: None, content: value.into_bytes() }))
}

fn change_body(body: &mut Body, dice: &mut Dice) {
    match body {
        Body::None => *body = Body::Bytes(Bin::new()),
        Body::Bytes(bytes) => change_bytes(bytes, dice),
        Body::Form(fields) => change_fields(fields, dice),
        Body::Json(value) => change_json(value, dice),
        Body::Encoded(coding, bytes) => match dice.throw(2) {
            0 => *coding = dice.pick(&CODINGS).to_owned(),
            _ => change_bytes(bytes, dice),
        },
        Body::Multipart(parts) => {
            if change_list(parts, dice) {
                return;
            }
            let at = dice.throw(parts.len());
            let (name, part) = &mut parts[at];
            match (dice.throw(6), part.file.clone()) {
                (0, _) => *name = dice.pick(&NAMES).to_owned(),
                (1, None) => part.file = Some(String::new()),
                (1, Some(_)) => part.file = None,
                // The content becomes the file name, or goes to the end of it.
                (2, Some(file)) => {
                    part.content = [file.as_bytes(), &part.content].concat();
                    part.file = Some(String::new());
                }
                (3, Some(file)) => {
                    part.file = Some(name.clone());
                    *name = file;
                }
                (4, Some(_)) => part.file = Some(dice.pick(&NAMES).to_owned()),
                _ => change_bytes(&mut part.content, dice),
            }
        }
    }
}

/// Changes one value somewhere in the tree.
fn change_json(root: &mut Json, dice: &mut Dice) {
    let mut number = dice.throw(count(root));
    if let Some(value) = nth(root, &mut number) {
        change_value(value, dice);
    }
}

fn count(value: &Json) -> usize {
    1 + match value {
        Json::Array(items) => items.iter().map(count).sum(),
        Json::Object(fields) => fields.iter().map(|(_, value)| count(value)).sum(),
        _ => 0,
    }
}

fn nth<'a>(value: &'a mut Json, number: &mut usize) -> Option<&'a mut Json> {
    if *number == 0 {
        return Some(value);
    }
    *number -= 1;
    match value {
        Json::Array(items) => items.iter_mut().find_map(|item| nth(item, number)),
        Json::Object(fields) => fields.iter_mut().find_map(|(_, value)| nth(value, number)),
        _ => None,
    }
}

fn change_value(value: &mut Json, dice: &mut Dice) {
    if dice.one_in(12) {
        *value = match dice.throw(3) {
            0 => Json::Array(vec![value.clone()]),
            1 => Json::Object(vec![("a".to_owned(), value.clone())]),
            _ => Json::Null,
        };
        return;
    }
    match value {
        Json::Null => {
            let empty =
                [Json::Text(String::new()), Json::Object(vec![]), Json::Array(vec![]), Json::Bool(false)];
            *value = dice.pick(&empty.each_ref()).clone();
        }
        Json::Bool(flag) => *flag = !*flag,
        Json::Number(number) => match dice.throw(4) {
            0 => *value = Json::Text(number.clone()),
            1 => number.push_str(if number.contains(['e', 'E', '.']) { "1" } else { ".0" }),
            _ => *number = dice.pick(&NUMBERS).to_owned(),
        },
        Json::Text(text) => match dice.throw(4) {
            0 if NUMBERS.contains(&text.as_str()) => *value = Json::Number(text.clone()),
            1 => drop(text.pop()),
            2 if text.is_empty() => *value = Json::Null,
            3 => *text = text.replace('é', "e\u{301}") + "\u{301}",
            _ => text.push(dice.pick(&['a', '\\', '"', '/'])),
        },
        Json::Array(items) if items.is_empty() && dice.one_in(2) => *value = Json::Object(vec![]),
        Json::Object(fields) if fields.is_empty() && dice.one_in(2) => *value = Json::Array(vec![]),
        Json::Array(items) => change_array(items, dice),
        Json::Object(fields) => change_object(fields, dice),
    }
}

fn change_array(items: &mut Vec<Json>, dice: &mut Dice) {
    if items.is_empty() {
        items.push(dice.pick(&[Json::Null, Json::Array(vec![])].each_ref()).clone());
        return;
    }
    let at = dice.throw(items.len());
    match (dice.throw(3), items.get(at + 1).cloned(), &mut items[at]) {
        // The next item goes into this one, or the last comes out of it.
        (0, Some(next), Json::Array(inner)) => {
            inner.push(next);
            items.remove(at + 1);
        }
        (1, _, Json::Array(inner)) if !inner.is_empty() => {
            let last = inner.pop().unwrap();
            items.insert(at + 1, last);
        }
        // Two texts become one.
        (_, Some(Json::Text(next)), Json::Text(text)) if dice.one_in(2) => {
            *text = format!("{text}{}{next}", dice.pick(&['\u{5}', '\u{0}', '\u{1f}', ',']));
            items.remove(at + 1);
        }
        _ => drop(change_list(items, dice)),
    }
}

fn change_object(fields: &mut Vec<(String, Json)>, dice: &mut Dice) {
    if fields.is_empty() {
        fields.push((dice.pick(&NAMES).to_owned(), Json::Null));
        return;
    }
    if change_list(fields, dice) {
        return;
    }
    let at = dice.throw(fields.len());
    let next = (at + 1) % fields.len();
    match (dice.throw(5), fields[at].clone()) {
        // The next field goes into the object before it.
        (4, (_, Json::Object(mut inner))) if next > at => {
            inner.push(fields[next].clone());
            fields[at].1 = Json::Object(inner);
            fields.remove(next);
        }
        (0, _) => fields[at].0 = dice.pick(&NAMES).to_owned(),
        // The end of a key becomes the beginning of its value.
        (1, (mut key, Json::Text(text))) => {
            let end: String = key.pop().into_iter().collect();
            fields[at] = (key, Json::Text(end + &text));
        }
        // `{"a":{"b":…}}` becomes `{"a.b":…}`.
        (2, (key, Json::Object(inner))) => {
            fields.remove(at);
            fields.extend(inner.into_iter().map(|(below, value)| (format!("{key}.{below}"), value)));
        }
        (3, (_, value)) => {
            fields[at].1 = fields[next].1.clone();
            fields[next].1 = value;
        }
        _ => fields[at].1 = Json::Array(vec![fields[at].1.clone(), fields[next].1.clone()]),
    }
}
