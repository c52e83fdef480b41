//! client [URL]: sends six tokens to the demo model, prints which token each one takes most from.
//! The standard library alone: rustc -O client.rs

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::{env, thread, time::Duration};

/// Status, headers and body. In HTTP/1.0 the answer ends with the connection and is never in chunks.
fn send(url: &str, path: &str, json: &str) -> Result<(String, String, String), Box<dyn Error>> {
    let rest = url
        .strip_prefix("http://")
        .ok_or("the URL must begin with http://")?;
    let (host, base) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "POST {base}{path} HTTP/1.0\r\nHost: {host}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}",
        json.len()
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or("the answer was cut off")?;
    let (line, headers) = head.split_once("\r\n").ok_or("the answer has no headers")?;
    let status = line.split(' ').nth(1).unwrap_or("");
    Ok((status.into(), headers.into(), body.into()))
}

fn header<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    headers
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

fn post(url: &str, path: &str, json: &str) -> Result<String, Box<dyn Error>> {
    for left in (0..6).rev() {
        let (status, headers, body) = send(url, path, json)?;
        match status.as_str() {
            "200" => return Ok(body),
            "503" if left > 0 => {
                let seconds = header(&headers, "Retry-After")
                    .and_then(|s| s.parse().ok())
                    .unwrap_or(1);
                thread::sleep(Duration::from_secs(seconds));
            }
            _ => return Err(format!("{status}: {body}").into()),
        }
    }
    unreachable!("the last attempt returns")
}

fn base64(text: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0, 0u32);
    for c in text.bytes() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break, // padding
        };
        held = held << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    bytes
}

/// The numbers of the tensor object with that name: it holds one string of base64.
fn tensor(json: &str, name: &str) -> Option<Vec<f32>> {
    let object = json.split_once(&format!("\"{name}\":{{"))?.1;
    let data = object.split_once("\"data\":\"")?.1.split_once('"')?.0;
    Some(
        base64(data)
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().nth(1).unwrap_or("http://127.0.0.1:8080".into());
    let words: Vec<_> = "the cat sat on the mat".split(' ').collect();
    let x: [[f32; 16]; 6] = [
        [
            1., 0., 0., 1., 0., 0., 0., 0., -1., -1., -1., -1., -1., -1., -1., -1.,
        ],
        [
            1., 1., 1., 0., 1., 0., 0., 0., -1., 1., -1., -1., -1., -1., -1., -1.,
        ],
        [
            1., 2., 4., 0., 0., 1., 0., 0., 1., 1., 1., -1., -1., -1., -1., -1.,
        ],
        [
            1., 3., 9., 0., 0., 0., 1., 0., 1., -1., 1., 1., -1., -1., -1., -1.,
        ],
        [
            1., 4., 16., 1., 0., 0., 0., 0., -1., -1., -1., -1., -1., -1., -1., -1.,
        ],
        [
            1., 5., 25., 0., 1., 0., 0., 0., -1., -1., 1., -1., -1., -1., -1., -1.,
        ],
    ];
    // {:?} of nested arrays of numbers is JSON.
    let options = r#""return_attentions":{"heads":[0]},"encoding_format":"base64""#;
    let request = format!("{{\"inputs_embeds\":{x:?},{options}}}");
    let answer = post(&url, "/v1/models/demo/attention", &request)?;

    let attention = tensor(&answer, "attentions").ok_or("no attentions")?;
    for (word, row) in words.iter().zip(attention.chunks(words.len())) {
        let (best, weight) = row
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(b.1))
            .ok_or("an empty row")?;
        println!("{word} looks at {}: {weight:.4}", words[best]);
    }
    let outputs = tensor(&answer, "outputs").ok_or("no outputs")?;
    let sum: f64 = outputs.iter().map(|&v| f64::from(v)).sum();
    println!(
        "outputs [{},{}], sum {sum:.4}",
        x.len(),
        outputs.len() / x.len()
    );
    Ok(())
}
