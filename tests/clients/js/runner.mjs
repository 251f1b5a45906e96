// What the runners share: they take an address and a scenario, read a request from stdin and print lines of JSON.
//
//   {"delta": "..."}   a piece of text as the library hands it out
//   {"end": {...}}     the answer: text, finish, chunks, usage, calls
//   {"error": {...}}   what the library raised: name, message, code, status; with the text until then

import { text } from 'node:stream/consumers'

export const note = (path) => `The note at ${path} says: pier nine.`

export class Heard {
  text = ''
  chunks = 0
  finish = null
  usage = null
  calls = []

  take(delta) {
    if (delta) {
      this.text += delta
      say({ delta })
    }
  }
}

export function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

/** Run the scenario that the command line names; `library` has one function for each. */
export async function run(library) {
  const [base, scenario, ...more] = process.argv.slice(2)
  const request = JSON.parse(await text(process.stdin))
  const heard = new Heard()
  try {
    await library[scenario]({ base, request, heard, more })
    say({ end: heard })
  } catch (error) {
    const { code, type, param, status = error.statusCode } = error.cause?.status ? error.cause : error
    const { name, message, responseBody: body } = error
    say({ error: { name, message, code, type, param, status, body, text: heard.text } })
  }
}
