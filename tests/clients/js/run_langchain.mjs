// LangChain's `@langchain/openai`.

import { ToolMessage } from '@langchain/core/messages'
import { ChatOpenAI } from '@langchain/openai'

import { note, run } from './runner.mjs'

const modelOf = (base, request) =>
  new ChatOpenAI({ model: request.model, apiKey: 'none', maxRetries: 0, configuration: { baseURL: base } })

async function read(stream, heard) {
  let whole
  for await (const chunk of stream) {
    heard.chunks += 1
    heard.take(chunk.content)
    whole = whole ? whole.concat(chunk) : chunk
  }
  heard.finish = whole.response_metadata.finish_reason
  heard.usage = whole.usage_metadata
  return whole
}

await run({
  async stream({ base, request, heard }) {
    await read(await modelOf(base, request).stream(request.messages), heard)
  },

  async whole({ base, request, heard }) {
    const answer = await modelOf(base, request).invoke(request.messages)
    heard.take(answer.content)
    heard.finish = answer.response_metadata.finish_reason
    heard.usage = answer.usage_metadata
  },

  async tools({ base, request, heard }) {
    const model = modelOf(base, request).bindTools(request.tools)
    const messages = [...request.messages]
    for (;;) {
      const answer = await read(await model.stream(messages), heard)
      messages.push(answer)
      if (!answer.tool_calls?.length) break
      for (const { id, args } of answer.tool_calls) {
        heard.calls.push(args.path)
        messages.push(new ToolMessage({ tool_call_id: id, content: note(args.path) }))
      }
    }
  },

  async stop({ base, request, heard }) {
    const controller = new AbortController()
    const stream = await modelOf(base, request).stream(request.messages, { signal: controller.signal })
    for await (const chunk of stream) {
      heard.take(chunk.content)
      if (heard.text) controller.abort()
    }
  },
})
