// LangChain's `@langchain/openai`; with `responses` behind the scenario the way in which Obsidian Copilot's LM Studio
// provider uses it.

import { ToolMessage } from '@langchain/core/messages'
import { ChatOpenAI } from '@langchain/openai'

import { note, run } from './runner.mjs'

function modelOf({ base, request, more }) {
  const options = { model: request.model, apiKey: 'none', maxRetries: 0, configuration: { baseURL: base } }
  if (more[0] === 'responses') {
    Object.assign(options, { useResponsesApi: true, modelKwargs: { text: { format: { type: 'text' } } } })
  }
  return new ChatOpenAI(options)
}

const finishOf = ({ finish_reason, status }) => finish_reason ?? (status === 'completed' ? 'stop' : status)

async function read(stream, heard) {
  let whole
  for await (const chunk of stream) {
    heard.chunks += 1
    heard.take(chunk.text)
    whole = whole ? whole.concat(chunk) : chunk
  }
  heard.finish = finishOf(whole.response_metadata)
  heard.usage = whole.usage_metadata
  return whole
}

await run({
  async stream(asked) {
    await read(await modelOf(asked).stream(asked.request.messages), asked.heard)
  },

  async whole(asked) {
    const { heard, request } = asked
    const answer = await modelOf(asked).invoke(request.messages)
    heard.take(answer.text)
    heard.finish = finishOf(answer.response_metadata)
    heard.usage = answer.usage_metadata
  },

  async tools(asked) {
    const { heard, request } = asked
    const model = modelOf(asked).bindTools(request.tools)
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

  async stop(asked) {
    const { heard, request } = asked
    const controller = new AbortController()
    const stream = await modelOf(asked).stream(request.messages, { signal: controller.signal })
    for await (const chunk of stream) {
      heard.take(chunk.text)
      if (heard.text) controller.abort()
    }
  },
})
