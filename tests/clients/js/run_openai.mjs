// The `openai` package.

import OpenAI from 'openai'

import { note, run } from './runner.mjs'

const clientOf = (base) => new OpenAI({ baseURL: base, apiKey: 'none', maxRetries: 0 })

async function read(stream, heard) {
  for await (const chunk of stream) {
    heard.chunks += 1
    if (!Array.isArray(chunk.choices)) throw new Error(`a chunk without choices: ${JSON.stringify(chunk)}`)
    heard.take(chunk.choices[0]?.delta.content)
    heard.finish = chunk.choices[0]?.finish_reason ?? heard.finish
    heard.usage = chunk.usage ?? heard.usage
  }
}

await run({
  async stream({ base, request, heard }) {
    const options = { ...request, stream: true, stream_options: { include_usage: true } }
    await read(await clientOf(base).chat.completions.create(options), heard)
  },

  async whole({ base, request, heard }) {
    const answer = await clientOf(base).chat.completions.create(request)
    heard.take(answer.choices[0].message.content)
    heard.finish = answer.choices[0].finish_reason
    heard.usage = answer.usage
  },

  async tools({ base, request, heard }) {
    const called = ({ path }) => {
      heard.calls.push(path)
      return note(path)
    }
    const tools = request.tools.map((tool) => ({
      ...tool,
      function: { ...tool.function, function: called, parse: JSON.parse },
    }))
    const runner = clientOf(base).chat.completions.runTools({ ...request, tools, stream: true })
    runner.on('chunk', () => (heard.chunks += 1))
    heard.take(await runner.finalContent())
  },

  async managed({ base, request, heard }) {
    const { messages, ...fields } = request
    const stream = clientOf(base).responses.stream({ ...fields, input: messages })
    stream.on('event', () => (heard.chunks += 1))
    stream.on('response.output_text.delta', ({ delta }) => heard.take(delta))
    const response = await stream.finalResponse()
    heard.finish = response.status
    heard.usage = response.usage
    heard.calls = response.output.map((item) => item.type)
  },

  async stop({ base, request, heard }) {
    const stream = await clientOf(base).chat.completions.create({ ...request, stream: true })
    for await (const chunk of stream) {
      heard.take(chunk.choices[0].delta.content)
      if (heard.text) stream.controller.abort()
    }
  },
})
